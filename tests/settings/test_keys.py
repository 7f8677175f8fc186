"""The key store: a file that only its owner reads, or the system's keyring."""

import os
import stat
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rlm import RLM, ConfigError
from rlm.settings.files import config_folder, locked
from rlm.settings.keys import KeyStore, key_name, keyring_problem, stored_keys


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "config")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_stored_keys_are_readable_only_by_their_owner(store: KeyStore) -> None:
    old = os.umask(0)
    try:
        store.set("OPENAI_API_KEY", " sk-1 \n")
        store.set("GROQ_API_KEY", "gsk-2")
    finally:
        os.umask(old)
    assert store.path is not None
    assert (mode_of(store.path), mode_of(store.path.parent)) == (0o600, 0o700)
    assert store.values() == {"OPENAI_API_KEY": "sk-1", "GROQ_API_KEY": "gsk-2"}
    assert store.values(unless=["OPENAI_API_KEY"]) == {"GROQ_API_KEY": "gsk-2"}
    assert store.names() == {"GROQ_API_KEY": "file", "OPENAI_API_KEY": "file"}
    store.remove("OPENAI_API_KEY")
    assert store.values() == {"GROQ_API_KEY": "gsk-2"}
    with pytest.raises(ConfigError, match="has no OPENAI_API_KEY"):
        store.remove("OPENAI_API_KEY")
    assert [each.name for each in store.path.parent.iterdir()] == ["keys.json"]


def test_a_key_file_readable_by_others_is_repaired_with_a_notice(store: KeyStore) -> None:
    store.set("OPENAI_API_KEY", "sk-1")
    assert store.path is not None
    store.path.chmod(0o644)
    assert store.values() == {"OPENAI_API_KEY": "sk-1"}
    assert store.notice is not None
    assert "; now only you can" in store.notice
    assert "sk-1" not in store.notice
    assert mode_of(store.path) == 0o600
    again = KeyStore(store.folder)
    assert again.values()
    assert again.notice is None


def test_a_symbolic_link_is_neither_read_nor_written_through(
    store: KeyStore, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_text('{"OPENAI_API_KEY": "planted"}')
    assert store.path is not None
    store.path.parent.mkdir()
    store.path.symlink_to(target)
    for attempt in (store.values, lambda: store.set("GROQ_API_KEY", "gsk-2")):
        with pytest.raises(ConfigError, match="is a symbolic link"):
            attempt()
    assert target.read_text() == '{"OPENAI_API_KEY": "planted"}'
    keys, notice = stored_keys({"RLM_CONFIG_DIR": str(store.folder)})
    assert keys == {}
    assert notice is not None
    assert notice.startswith("The key store is not used: ")


@pytest.mark.parametrize("make", ["fifo", "folder"])
def test_a_pipe_or_folder_is_refused_without_waiting(make: str, store: KeyStore) -> None:
    assert store.path is not None
    store.path.parent.mkdir()
    os.mkfifo(store.path) if make == "fifo" else store.path.mkdir()
    with pytest.raises(ConfigError, match="is not a regular file"):
        store.values()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(store: KeyStore) -> None:
    store.set("OPENAI_API_KEY", "sk-1")
    assert store.path is not None
    os.chown(store.path, 12_345, -1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        store.values()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ("[]", "more than names and keys"),
        ('{"A": 1}', "more than names and keys"),
        ("[" * 60_000, "is not JSON"),
        (" " * 70_000, "more than 65,536 bytes"),
    ],
)
def test_a_broken_key_file_is_reported_without_its_content(
    text: str, told: str, store: KeyStore
) -> None:
    assert store.path is not None
    store.path.parent.mkdir()
    store.path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        store.set("OPENAI_API_KEY", "sk-1")
    assert store.path.read_text() == text, "nothing is lost"


@pytest.mark.parametrize("key", ["", "two\nlines", "caf\u00e9", "x" * 10_001, "\x1b[31m"])
def test_an_invalid_key_is_refused_without_showing_it(key: str, store: KeyStore) -> None:
    with pytest.raises(ConfigError, match=r"not a valid key|no key was given") as caught:
        store.set("OPENAI_API_KEY", key)
    assert not key or key not in str(caught.value)


def test_unknown_names_are_kept_but_never_used(store: KeyStore) -> None:
    assert store.path is not None
    store.path.parent.mkdir()
    store.path.write_text('{"PATH": "/evil", "OPENAI_API_KEY": "sk-1"}')
    assert store.values() == {"OPENAI_API_KEY": "sk-1"}
    store.set("GROQ_API_KEY", "gsk-2")
    assert '"PATH": "/evil"' in store.path.read_text()


def test_concurrent_writers_lose_nothing(store: KeyStore) -> None:
    names = ["OPENAI_API_KEY", "GROQ_API_KEY", "XAI_API_KEY", "MISTRAL_API_KEY", "CO_API_KEY"]
    threads = [threading.Thread(target=store.set, args=(name, f"key-{name}")) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(store.names()) == sorted(names)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("openai", "OPENAI_API_KEY"),
        ("Claude", "ANTHROPIC_API_KEY"),
        ("groq_api_key", "GROQ_API_KEY"),
        ("AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID"),
    ],
)
def test_a_provider_name_stands_for_its_key_variable(given: str, name: str) -> None:
    assert key_name(given) == name


def test_a_mistyped_provider_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'openai'"):
        key_name("opnai")
    with pytest.raises(ConfigError, match="no provider uses a key 'lmstudio'"):
        key_name("lmstudio")


def test_folders_created_above_the_key_file_are_private_too(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        KeyStore(tmp_path / "home" / ".config" / "rlm").set("OPENAI_API_KEY", "sk-1")
    finally:
        os.umask(before)
    for name in ("home", "home/.config", "home/.config/rlm"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700


def test_waiting_for_a_lock_is_limited(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm.settings.files.LOCK_SECONDS", 0.05)
    store.set("OPENAI_API_KEY", "sk-1")
    assert store.folder is not None
    with locked(store.folder), pytest.raises(ConfigError, match="another process has kept"):
        store.set("OPENAI_API_KEY", "sk-2")
    assert store.values() == {"OPENAI_API_KEY": "sk-1"}


def test_location_of_the_configuration_folder() -> None:
    assert config_folder({"RLM_CONFIG_DIR": "/a"}) == Path("/a")
    assert config_folder({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/rlm")
    assert config_folder({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}) == Path("/h/.config/rlm")
    assert config_folder({"USERPROFILE": "/u"}) == Path("/u/.config/rlm")
    assert config_folder({"HOME": "relative"}) is config_folder({"HOME": "."}) is None
    assert config_folder({}) is None


# -- the keyring ----------------------------------------------------------------------------------


class FakeKeyring(ModuleType):
    """What of the package `keyring` is used, kept in memory."""

    def __init__(self, home: str = "keyring.backends.SecretService") -> None:
        super().__init__("keyring")
        self.kept: dict[tuple[str, str], str] = {}
        self.backend = type("Keyring", (), {"__module__": home})()
        self.locked = False

    def get_keyring(self) -> object:
        return self.backend

    def set_password(self, service: str, name: str, value: str) -> None:
        self.kept[service, name] = value

    def get_password(self, service: str, name: str) -> str | None:
        if self.locked:
            raise KeyringError("locked")
        return self.kept.get((service, name))

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


class KeyringError(Exception):
    pass


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> FakeKeyring:
    fake = FakeKeyring()
    monkeypatch.setitem(sys.modules, "keyring", fake)
    monkeypatch.setitem(
        sys.modules,
        "keyring.errors",
        SimpleNamespace(KeyringError=KeyringError),
    )
    return fake


def test_a_key_in_the_keyring_is_not_in_the_file(store: KeyStore, keyring: FakeKeyring) -> None:
    assert keyring_problem() is None
    store.set("OPENAI_API_KEY", "sk-1", in_keyring=True)
    assert keyring.kept == {("rlm", "OPENAI_API_KEY"): "sk-1"}
    assert store.path is not None
    assert "sk-1" not in store.path.read_text()
    assert store.names() == {"OPENAI_API_KEY": "keyring"}
    assert store.values() == {"OPENAI_API_KEY": "sk-1"}
    store.set("OPENAI_API_KEY", "sk-2")
    assert (keyring.kept, store.values()) == ({}, {"OPENAI_API_KEY": "sk-2"})
    store.set("OPENAI_API_KEY", "sk-3", in_keyring=True)
    store.remove("OPENAI_API_KEY")
    assert (keyring.kept, store.values()) == ({}, {})


def test_a_locked_keyring_gives_a_warning(
    store: KeyStore, keyring: FakeKeyring, caplog: pytest.LogCaptureFixture
) -> None:
    store.set("OPENAI_API_KEY", "sk-1", in_keyring=True)
    keyring.locked = True
    assert store.values() == {}
    assert "the keyring failed for OPENAI_API_KEY" in caplog.text


@pytest.mark.parametrize("home", ["keyring.backends.fail", "keyring.backends.null"])
def test_a_missing_keyring_is_reported(
    home: str, store: KeyStore, keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "backend", type("Keyring", (), {"__module__": home})())
    assert keyring_problem() == "this system has no keyring"
    with pytest.raises(ConfigError, match="no keyring"):
        store.set("OPENAI_API_KEY", "sk-1", in_keyring=True)
    assert store.names() == {}


# -- for programs ---------------------------------------------------------------------------------


def test_rlm_uses_a_stored_key_if_the_environment_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLM_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="rlm setup"):
        RLM()
    KeyStore(tmp_path / "config").set("GROQ_API_KEY", "gsk-stored")
    assert RLM().config.model == "groq/llama-3.3-70b-versatile"
    assert "GROQ_API_KEY" not in os.environ
    one = RLM("groq/x")
    client: Any = one.runner.resources.routes["groq/x"].client
    assert "gsk-stored" in repr(client._endpoint._headers)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    assert RLM().config.model == "openai/gpt-5-mini"
    with pytest.raises(ConfigError, match="no model"):
        RLM(variables={})
