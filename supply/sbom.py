"""The bill of materials of an installation, from its locked list, as CycloneDX JSON on standard output. Needs no
network."""

import sys
import uuid
from hashlib import sha256
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from ragkv import __version__
from supply.lists import Pinned, read_list
from supply.vendored import VENDORED, Vendored

_NAMESPACE = uuid.UUID("8d1c5ad6-9a1a-5f38-9d0a-3c3d2f0b1c55")


def bill_of(path: Path) -> Bom:
    """The same list gives the same bill, but for its time."""
    pins = read_list(path)
    bom = Bom(serial_number=uuid.uuid5(_NAMESPACE, sha256(path.read_bytes()).hexdigest()))
    root = bom.metadata.component = Component(
        name="ragkv", version=__version__, type=ComponentType.APPLICATION, bom_ref="ragkv"
    )
    components = {pinned.name: _component(pinned) for pinned in pins}
    vendored = [_vendored_component(file) for file in VENDORED]
    bom.components.update([*components.values(), *vendored])
    holders = {"ragkv": root, **components}
    needed = {holder: [components[p.name] for p in pins if holder in p.via] for holder in holders}
    for holder, parts in needed.items():
        bom.register_dependency(holders[holder], parts + vendored if holder == "ragkv" else parts)
    return bom


def _component(pinned: Pinned) -> Component:
    files = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in pinned.hashes]
    where = XsUri(f"https://pypi.org/project/{pinned.name}/{pinned.version.split('+')[0]}/#files")
    return Component(
        name=pinned.name,
        version=pinned.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{pinned.name}@{pinned.version}",
        purl=PackageURL("pypi", name=pinned.name, version=pinned.version),
        external_references=[ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=where, hashes=files)],
    )


def _vendored_component(file: Vendored) -> Component:
    return Component(
        name=file.name,
        version=file.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{file.name}@{file.version}",
        purl=PackageURL("npm", name=file.name, version=file.version, subpath=file.published),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=file.sha256)],
    )


def main(path: str) -> None:
    outputter = make_outputter(bill_of(Path(path)), OutputFormat.JSON, SchemaVersion.V1_6)
    sys.stdout.write(outputter.output_as_string(indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
