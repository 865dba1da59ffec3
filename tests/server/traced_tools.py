"""A toolset in a process that has an OpenTelemetry SDK, which writes its spans into a file, a line each."""

from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from rapkit import Context, Toolset

spans = Path("spans.jsonl").open("a", buffering=1)  # noqa: SIM115 - as long as the process lasts
provider = TracerProvider()
provider.add_span_processor(
    SimpleSpanProcessor(ConsoleSpanExporter(out=spans, formatter=lambda span: (span.to_json(indent=None) or "") + "\n"))
)
trace.set_tracer_provider(provider)

tools = Toolset("traced", store="sqlite:///traced.db")


@tools.tool
async def ask(ctx: Context) -> str:
    """Ask."""
    with trace.get_tracer("the author's").start_as_current_span("within"):
        return await ctx.choose("Which?", ["left", "right"])


if __name__ == "__main__":
    import sys

    tools.run(port=int(sys.argv[1]))
