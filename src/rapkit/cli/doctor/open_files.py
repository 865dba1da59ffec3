"""Check the limit on open files and connections."""

from rapkit.cli.doctor.check_result import CheckResult
from rapkit.cli.doctor.checked_agent import CheckedAgent

_FEW = 1024
_CHECK = "open files"


def check(_checked: CheckedAgent) -> list[CheckResult]:
    """Each call under way, each client that follows a thread and each store takes some."""
    try:
        import resource
    except ImportError:
        return [CheckResult(_CHECK, "skipped", "this system does not say how many files may be open")]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    seen = "no limit" if soft == resource.RLIM_INFINITY else f"up to {soft:,} at once"
    if soft != resource.RLIM_INFINITY and soft < _FEW:
        most = "" if hard == resource.RLIM_INFINITY else f", up to {hard:,} without asking anybody"
        return [CheckResult(_CHECK, "warning", f"{seen}, which is few", f"Run: ulimit -n {_FEW * 4}{most}.")]
    return [CheckResult(_CHECK, "ok", seen)]
