"""Write the files of a new project."""

import contextlib
from importlib.resources import files
from pathlib import Path

from rapkit.cli.new.names import ProjectName
from rapkit.errors import ConfigError

_TEMPLATES = files(__package__) / "templates"
_MAY_BE_THERE = (".git",)


def write_project(project: ProjectName) -> list[str]:
    """Write them; their names. If one cannot be written, those that were are removed again."""
    folder = project.folder
    made: list[Path] = []
    try:
        there = (
            sorted(each.name for each in folder.iterdir() if each.name not in _MAY_BE_THERE) if folder.exists() else []
        )
        if there:
            raise ConfigError(
                f"{project.shown_folder} is there already, and not empty: it has {_some(there)}. Nothing was changed; choose another name."
            )
        made += [each for each in (*reversed(folder.parents), folder) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in _texts(project).items():
            with (folder / name).open("x", encoding="utf-8") as file:
                made.append(folder / name)
                file.write(text)
    except OSError as error:
        _remove(made)
        raise ConfigError(
            f"{project.shown_folder} cannot be made: {error.strerror or error}. Nothing is left of it."
        ) from None
    except BaseException:
        _remove(made)
        raise
    return list(_texts(project))


def _texts(project: ProjectName) -> dict[str, str]:
    names = {
        f"{project.module}.py": "module.py",
        f"test_{project.module}.py": "test_module.py",
        "rapkit.toml": "rapkit.toml",
        "plan.yaml": "plan.yaml",
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        ".gitignore": "gitignore",
    }
    return {name: _filled_in(template, project) for name, template in names.items()}


def _filled_in(template: str, project: ProjectName) -> str:
    text = (_TEMPLATES / f"{template}.template").read_text(encoding="utf-8")
    return text.replace("{{name}}", project.name).replace("{{module}}", project.module)


def _remove(made: list[Path]) -> None:
    for path in reversed(made):
        with contextlib.suppress(OSError):  # another process has put something there, or has removed it
            path.rmdir() if path.is_dir() else path.unlink()


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (" and more" if len(names) > 3 else "")
