"""Subprocesses of a handler, which never outlive its call.

Each run is a process group (and session) of its own. It is over when its leader, the program itself, is over: what the leader left running
in the group is then ended too. If the run is cancelled, abandoned or out of time, the group gets SIGTERM and, after a grace, SIGKILL.

A server that is killed can end nothing. So that its successor can, each run has a random token that was made durable before the program was
started and stands in its environment, which children inherit; `kill_leftovers` finds the processes by it. That is safe whenever the server
dies: a token whose program was never started is carried by no process, and a process that was given a dead one's pid does not carry the
token.

What gets away: a program that became a daemon in a session of its own, if its run then ended by itself (that is how one leaves a daemon
behind on purpose); what another service was asked to run (docker, cron, systemd); what runs as another user (sudo); and after a crash, on
Linux, a group in which every process cleared, overwrote or hid its environment. Elsewhere nothing can be found after a crash.
"""

from rapkit.server.processes.leftovers import kill_leftovers
from rapkit.server.processes.run import Completed, Processes, Run

__all__ = ["Completed", "Processes", "Run", "kill_leftovers"]
