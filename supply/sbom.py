"""The bill of materials of an installation, from its locked list, as CycloneDX JSON on standard output. Needs no
network."""

import sys
import uuid
from hashlib import sha256
from pathlib import Path
from typing import Any

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from ragkv import __version__
from supply.lists import VENDORED, Pinned, Vendored, read_list

_NAMESPACE = uuid.UUID("8d1c5ad6-9a1a-5f38-9d0a-3c3d2f0b1c55")


def bill_of(path: Path) -> Bom:
    """The same list gives the same bill, but for its time."""
    pins = read_list(path)
    bom = Bom(serial_number=uuid.uuid5(_NAMESPACE, sha256(path.read_bytes()).hexdigest()))
    root = bom.metadata.component = Component(
        name="ragkv", version=__version__, type=ComponentType.APPLICATION, bom_ref="ragkv"
    )
    components = {}
    for pinned in pins:
        files = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in pinned.hashes]
        page = XsUri(f"https://pypi.org/project/{pinned.name}/{pinned.version.split('+')[0]}/#files")
        reference = ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=page, hashes=files)
        components[pinned.name] = _library(pinned, "pypi", external_references=[reference])
    vendored = [
        _library(file, "npm", file.published, hashes=[HashType(alg=HashAlgorithm.SHA_256, content=file.sha256)])
        for file in VENDORED
    ]
    bom.components.update([*components.values(), *vendored])
    holders = {"ragkv": root, **components}
    needed = {holder: [components[p.name] for p in pins if holder in p.via] for holder in holders}
    for holder, parts in needed.items():
        bom.register_dependency(holders[holder], parts + vendored if holder == "ragkv" else parts)
    return bom


def _library(package: Pinned | Vendored, registry: str, subpath: str | None = None, **files: Any) -> Component:
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{package.name}@{package.version}",
        purl=PackageURL(registry, name=package.name, version=package.version, subpath=subpath),
        **files,
    )


def main(path: str) -> None:
    outputter = make_outputter(bill_of(Path(path)), OutputFormat.JSON, SchemaVersion.V1_6)
    sys.stdout.write(outputter.output_as_string(indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
