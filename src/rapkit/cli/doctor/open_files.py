"""How many files and connections a process may have open."""

from rapkit.cli.doctor.check_result import Verdict
from rapkit.cli.doctor.checked_agent import Patient

_FEW = 1024
_CHECK = "open files"


def check(_patient: Patient) -> list[Verdict]:
    """Each call under way, each client that follows a thread and each store takes some."""
    try:
        import resource
    except ImportError:
        return [Verdict(_CHECK, "skipped", "this system does not say how many files may be open")]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    seen = "no limit" if soft == resource.RLIM_INFINITY else f"up to {soft:,} at once"
    if soft != resource.RLIM_INFINITY and soft < _FEW:
        most = "" if hard == resource.RLIM_INFINITY else f", up to {hard:,} without asking anybody"
        return [Verdict(_CHECK, "warning", f"{seen}, which is few", f"Run: ulimit -n {_FEW * 4}{most}.")]
    return [Verdict(_CHECK, "ok", seen)]
