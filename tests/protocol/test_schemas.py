import json

from jsonschema_rs import meta

from rapkit.protocol.schemas import FOLDER, files


def test_the_shipped_schemas_are_those_of_the_models() -> None:
    shipped = {path.name: path.read_text() for path in FOLDER.iterdir()}

    assert shipped == files(), "regenerate them with: python -m rapkit.protocol.schemas"


def test_the_shipped_schemas_are_valid() -> None:
    for text in files().values():
        meta.validate(json.loads(text))
