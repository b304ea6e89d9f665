"""The files at a location, opened according to the settings."""

from pathlib import Path

from ragkv.errors import Forbidden
from ragkv.object_store import StoreLocation
from ragkv.service.data_sources.bucket import BucketFiles
from ragkv.service.data_sources.folder import FolderFiles
from ragkv.service.data_sources.location import FOLDER, Location, SourceFiles, allowed_locations, root_of
from ragkv.settings import Settings


def files_of(location: Location, tenant: str, settings: Settings) -> SourceFiles:
    """Nothing is read yet. `tenant`: its name. Raises Forbidden for a location that the settings do not allow to the
    tenant."""
    root = root_of(location, tenant, allowed_locations(settings.data_sources_allowed))
    if location.scheme == FOLDER:
        folder, own = Path(str(location)).resolve(), settings.data_dir.resolve()
        if folder.is_relative_to(own) or own.is_relative_to(folder):
            raise Forbidden(f"{location} overlaps the service's own data folder: connect another folder")
        return FolderFiles(Path(str(root)), location.names[len(root.names) :])
    if location.scheme != "s3":
        return BucketFiles(StoreLocation(location.url))
    return BucketFiles(
        StoreLocation(
            location.url,
            settings.data_sources_endpoint,
            settings.data_sources_region,
            settings.data_sources_access_key,
            settings.data_sources_secret_key,
        )
    )
