"""Secrets stay shut, under all the names they go by, on every way to a file; over a real client."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.data.filesystem.denial import Denials, holds_private_key
from tests.gateway.places import asked, opened, refused, session_of
from tests.gateway.recipes import Recipe

WORD = "swordfish"
BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n"
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY * 4}-----END RSA PRIVATE KEY-----\n"

SECRETS = [
    *("server.key~", ".env_prod", "ssh_host_rsa_key", "kubeconfig", ".vault-token"),
    *(".env", ".env.bak", ".env.local", ".env-staging", ".envrc", ".ENV", "prod.env", ".env.1"),
    *("id_rsa", "id_rsa.old", "ID_ED25519", "id_ecdsa.save", "deploy_rsa", "github-ed25519"),
    *("server.pem.orig", ".server.key.swp", "#server.key#", ".#server.key", "server.key.bak.2~"),
    *("server.key (1)", "Copy of server.key", "backup-id_rsa", "server.key.2024-05-01"),
    *("credentials.json.bak", "aws-credentials.json", ".netrc", "_netrc", ".npmrc.old"),
    *(".pypirc", ".pgpass~", ".git-credentials", ".htpasswd", "prod-kubeconfig"),
    *("terraform.tfstate", "terraform.tfstate.backup", "prod.tfvars", "prod.auto.tfvars.bak"),
    *(".bash_history", ".python_history", "psql_history", "store.p12", "vault.kdbx", "app.jks"),
    *("service-account-prod.json", "client_secret_12.json", "my-secrets.yaml", "token.txt"),
    *("shadow-", "gshadow-", "passwd-", "shadow.save", "shadow.txt", "passwd.old2", ".env-"),
    *("deploy_key", "deploy-key.txt", "deploy_key-", "credentials-prod.json", "github_token"),
    *("aws_credential_file.ini", "server.pem.txt", ".env.txt", "id_rsa_", "server.key.bak3"),
    *("server.key.txt.save", "rootkey.csv", "x_accessKeys.csv", "npm-token.txt", "csrf.token.json"),
    *("secret-db.yaml", "secrets_prod.toml", "my_secret.txt", "team-passwords.csv", "k3s.yaml"),
    *("\uff0eenv", "SERVER.KEY.BAK", "auth.json", ".s3cfg", ".my.cnf", "wallet.dat"),
]
FOLDERS = [
    *(".aws/credentials", ".kube/config", ".gnupg/secring", ".docker/config.json", ".git/config"),
    *(".ssh/known", ".config/gh/hosts.yml", ".config/gcloud/x.db", "bare.git/config"),
    *("kube/config", "home/kube/config.old", "etc/kubernetes/admin.conf", "gh/hosts.yml"),
    *("deep/.AWS/config", ".ssh.bak/known", ".aws.old/x"),
]
SHOWN = [
    *("main.py", "README.md", ".env.example", ".env.prod.sample", ".env-template", "keys.md"),
    *("tokenizer.json", "password_form.py", "environment.yml", "main.py.bak", "notes.txt~"),
    *("token.py", "access_token.rb", "deploy_key.go", "my_secret.py", "secret_garden.txt"),
    *("added_tokens.json", "special_tokens_map.json", "token_counts.json", "stop_tokens.txt"),
    *("world_history.txt", "shadow.css", "passwd.c", "api_keys.md", "credentialing.md", "a-.txt"),
    *("history.md", "config.json", "docker-compose.yml", ".gitignore", "monkey.txt"),
]


def _tree(folder: Path) -> Recipe:
    root = folder / "repo"
    for name in [*SECRETS, *FOLDERS, *SHOWN]:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{WORD} {name}\n", "utf-8")
    return Recipe(folder)


@pytest.mark.parametrize("place", ["memory", "http"])
async def test_no_tool_reveals_a_secret(tmp_path: Path, place: str) -> None:
    async with opened(place, _tree(tmp_path)) as house, house.client() as client:
        session = await session_of(client)
        listed = await asked(client, "rlm_list", session=session, limit=200)
        assert {each["name"] for each in listed["files"]} == set(SHOWN)
        for name in [*SECRETS, *FOLDERS]:
            await refused(client, "rlm_open", session=session, path=name)
        found = await asked(client, "rlm_search", session=session, query=WORD, limit=50)
        assert {each["name"] for each in found["hits"]} <= set(SHOWN)
        matching = await asked(
            client, "rlm_search", session=session, query=WORD, mode="regex", limit=50
        )
        assert {each["name"] for each in matching["hits"]} <= set(SHOWN)


INNOCENT = {
    "notes.txt": f"some words\n{KEY}",
    "config.yaml": "key: |\n" + "".join(f"  {line}\n" for line in KEY.splitlines()),
    "account.json": '{"private_key": "' + KEY.replace("\n", "\\n") + '"}',
    "old.txt": KEY.replace("RSA ", "OPENSSH "),
    "far.log": "a line of a log\n" * 100_000 + KEY.replace("RSA ", "EC "),
    "armoured.txt": KEY.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK"),
    "putty.txt": f"PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n{BODY}",
}


async def test_a_private_key_is_recognised_by_its_content(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    for name, text in INNOCENT.items():
        (root / name).write_text(text)
    (root / "about.md").write_text(
        "Keys begin with -----BEGIN PRIVATE KEY-----, which we look for."
    )
    (root / "public.txt").write_text(KEY.replace("PRIVATE", "PUBLIC"))
    async with opened("memory", Recipe(tmp_path)) as house, house.client() as client:
        session = await session_of(client)
        for name in INNOCENT:
            await refused(client, "rlm_open", session=session, path=name)
        for query in (
            "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
            "PRIVATE",
        ):
            found = await asked(client, "rlm_search", session=session, query=query, mode="regex")
            assert {each["name"] for each in found["hits"]} <= {"about.md", "public.txt"}
        handle = (await asked(client, "rlm_open", session=session, path="about.md"))["handle"]
        await asked(client, "rlm_read", session=session, handle=handle)
        (root / "about.md").write_text(KEY)
        await refused(client, "rlm_read", session=session, handle=handle)
        done = await client.call_tool(
            "rlm_exec", {"session": session, "code": "print(files)", "handles": [handle]}
        )
        assert BODY.strip() not in str(done.content)


ENDINGS = st.lists(
    st.sampled_from(
        ["~", "-", ".bak", ".old", ".orig", ".save", ".swp", ".1", "_backup", "-2", " (1)", ".old7"]
    ),
    max_size=4,
).map("".join)
CASES = st.sampled_from([str, str.upper, str.title])


@given(st.sampled_from(["server.key", "id_rsa", ".env", "kubeconfig", ".netrc"]), ENDINGS, CASES)
def test_backup_copies_of_secret_files_are_denied_too(
    name: str, ending: str, case: Callable[[str], str]
) -> None:
    assert Denials().forbid(("a", case(name + ending)))


@pytest.mark.parametrize("folder", ["spl-token", "erc20_token", "csrf-secret", "kube", "tokens"])
def test_source_code_in_a_folder_with_such_a_name_is_shown(folder: str) -> None:
    assert not Denials().forbid((folder, "src", "lib.rs"))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_not_taken_for_a_key(data: bytes) -> None:
    assert not holds_private_key(data)


def test_the_operators_denials_have_the_last_word() -> None:
    assert not Denials(()).forbid((".env",))
    assert not Denials(()).looks_inside
    assert Denials(["*.sql"]).forbid(("dump.sql.gz",))
    assert not Denials(["*.sql", "!example.sql"]).forbid(("example.sql",))


# -- roots that are exchanged ---------------------------------------------------------------------


@pytest.mark.parametrize("ranked", ["ranked", "regex"])
async def test_a_root_replaced_by_another_folder_is_not_searched(
    tmp_path: Path, ranked: str
) -> None:
    root, outside = tmp_path / "repo", tmp_path / "outside"
    for folder, text in ((root, "inside"), (outside, WORD)):
        folder.mkdir()
        (folder / "a.txt").write_text(f"{text} here\n")
    async with opened("memory", Recipe(tmp_path)) as house, house.client() as client:
        session = await session_of(client)
        arguments = {"session": session, "query": "here", "mode": ranked}
        found = await asked(client, "rlm_search", **arguments)
        assert [each["text"] for each in found["hits"]] == ["inside here"]
        root.rename(tmp_path / "aside")
        for swap in (os.symlink, lambda target, link: target.rename(link)):
            swap(outside, root)
            result = await client.call_tool("rlm_search", arguments)
            assert WORD not in str(result.content)
            assert WORD not in str(result.structured_content)
            if root.is_symlink():
                root.unlink()


# -- interpreters ---------------------------------------------------------------------------------


async def test_one_client_cannot_end_the_interpreter_of_another(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    async with opened("http", Recipe(tmp_path)) as house:
        async with house.client("ada") as ada, house.client("eve") as eve:
            session = await session_of(ada)
            await asked(ada, "rlm_exec", session=session, code="kept = 'mine'")
            for _ in range(20):
                other = await session_of(eve)
                await asked(eve, "rlm_exec", session=other, code="1")
                await eve.call_tool("rlm_session_close", {"session": "none"})
            again = await asked(ada, "rlm_exec", session=session, code="print(kept)")
        assert (again["output"], again["fresh"]) == ("mine\n", False)
