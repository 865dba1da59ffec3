"""The chapters of the demo and their captions."""

from rapkit.cli.demo.demo_state import Chapter

CHAPTERS = (
    Chapter(
        "Three processes",
        "A runtime that only receives and keeps, and two servers that have tools. They talk by POST, so each could be on another machine.",
    ),
    Chapter(
        "One request, two calls",
        "A message wakes a worker. It asks the model and sends its calls; each is acknowledged at once, and nobody waits on the line.",
    ),
    Chapter(
        "The agent sleeps",
        "The load test goes on in the lab. The agent does not run at all: no worker is alive, the conversation is rows in a file.",
    ),
    Chapter(
        "kill -9, everything",
        "Runtime, lab and ops are killed in the middle of the load test. What was acknowledged is on disk; that is all there is now.",
    ),
    Chapter(
        "They come back, and so does the result",
        "Nobody has to remember anything: the lab takes up its call again, and the result is a POST that wakes the agent.",
    ),
    Chapter(
        "An event wakes a child thread",
        "The subscription outlived the kill. Each event gets a thread of its own, which looks into it, reports to its parent, and ends.",
    ),
    Chapter(
        "A question waits for a person",
        "The roll-out asks somebody first. Meanwhile neither the tool nor the agent runs: the answer may take days.",
    ),
    Chapter(
        "The end",
        "The thread is closed. The servers are told, delete what belongs to it, and end its subscriptions.",
    ),
)
