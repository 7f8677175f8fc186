"""Names of files that usually hold secrets: keys, passwords, the internals of tools.

Clients of the gateway never see them, on any way to a file: list, open, read, search, runs. Those
that hardly ever hold anything else are left out of folders that are contexts. Names are matched by
whole parts of a path.
A copy is as secret as its original, so the suffixes of backups are ignored. Files with a private
key are recognised by their content, whatever their name.
"""

import fnmatch
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

__all__ = ["DEFAULT_DENIALS", "SCANNED_BYTES", "SURE_SECRETS", "Denials", "holds_private_key"]

_DOTENV = (
    *(".env", ".env?*", "*.env", "!.env*.example", "!.env*[._-]sample", "!.env*[._-]template"),
    *("!.env*[._-]example", "!.env*[._-]dist", "!.env*[._-]default", "!.env*[._-]defaults"),
)

SURE_SECRETS = (
    *_DOTENV,
    *(".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", "pgpass.conf", ".my.cnf", ".htpasswd"),
    *(".git-credentials", ".dockercfg", ".s3cfg", ".boto", ".databrickscfg"),
    *(".ssh", ".aws", ".azure", ".gcloud", ".gnupg", ".kube", ".password-store"),
    *("*.pem", "*.p8", "*.p12", "*.pfx", "*.pkcs12", "*.jks", "*.keystore", "*.kdb", "*.kdbx"),
    *("*.ppk", "*.keytab", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "ssh_host_*_key"),
    *("credentials.json", "client[-_]secret*.json", "service[-_]account*.json"),
    *("*.tfstate", "*.tfvars", ".bash_history", ".zsh_history", ".python_history"),
)
"""What hardly ever holds anything but secrets.

A folder becomes a context in order to be read, so a guide called `secrets.md` or a package called
`token` must not be missing.
"""

DEFAULT_DENIALS = (
    # Settings of programs, with their credentials. Examples of them are not secret.
    *_DOTENV,
    *(".netrc", "_netrc", ".authinfo*", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc"),
    *(".pgpass", "pgpass.conf", ".my.cnf", ".mylogin.cnf", ".htpasswd", ".dockercfg"),
    *(".dockerconfigjson", ".git-credentials", ".gitcookies", ".gitconfig", "*.git/config"),
    *(".s3cfg", ".s3curl", ".boto", ".databrickscfg", ".snowsql", ".terraformrc", "terraform.rc"),
    *(".fetchmailrc", ".msmtprc", ".mbsyncrc", ".offlineimaprc", ".esmtprc", ".rclone.conf"),
    *("rclone.conf", ".smbcredentials", ".ftpconfig", "sftp-config.json", "settings-security.xml"),
    *("auth.json", "kaggle.json", ".config/gh", "huggingface/token", ".bundle/config"),
    # Folders of tools.
    *(".git", ".hg", ".svn", ".bzr", ".ssh", ".aws", ".azure", ".gcloud", ".config/gcloud", ".oci"),
    *(".gnupg", ".docker", ".kube", ".password-store", ".terraform", ".terraform.d", ".dbt"),
    *(".vault*", ".ansible_vault*", "vault[-_]pass*"),
    # Names of keys.
    *("*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.pkcs12", "*.jks", "*.jceks", "*.keystore"),
    *("*.kdb", "*.kdbx", "*.ppk", "*.asc", "*.gpg", "*.pgp", "*.ovpn", "*.keytab", "*.jwk"),
    *("*.keychain", "*.keychain-db", "*.wallet", "wallet.dat", "id_rsa*", "id_dsa*", "id_ecdsa*"),
    *("id_ed25519*", "id_xmss*", "*[-_]rsa", "*[-_]dsa", "*[-_]ecdsa", "*[-_]ed25519"),
    *("ssh_host_*", "*_rsa_key", "*_dsa_key", "*_ecdsa_key", "*_ed25519_key", "privkey*"),
    *("private[-_.]key", "private[-_.]key.*", "*[-_]private[-_]key", "signing[-_]key"),
    # Names of credentials.
    *("kubeconfig*", "*.kubeconfig", "*[-_]kubeconfig", "kube[-_.]config", "kube[-_.]config.*"),
    *("credentials", "credentials.*", ".credentials*", "*credentials.json", "*credentials.yml"),
    *("*credentials.yaml", "*credentials.xml", "*credentials.ini", "*[-_]credentials"),
    *(
        "secret",
        "secret.json",
        "secret.y*ml",
        "secrets",
        "secrets.*",
        ".secret*",
        "*.secret",
        "*.secrets",
    ),
    *("*[-_]secret.y*ml", "*[-_]secrets.y*ml", "*[-_]secret.json", "*[-_]secrets.json"),
    *("*[-_]secrets.toml", "secret_token.rb", "client[-_]secret*", "service[-_]account*.json"),
    *("*[-_]service[-_]account*.json", "gha-creds-*.json", "token", "token.json", "token.txt"),
    *(".token*", "tokens.json", "tokens.txt", "tokens.toml", "api[-_]key", "api[-_]key*.txt"),
    *("api[-_]key*.json", "password", "password.txt", "passwords", "passwords.*", ".passw*"),
    *("kube/config", "k3s.yaml", "kubernetes/admin.conf", "gh/hosts.yml"),
    *("shadow", "gshadow", "passwd", "master.passwd", ".rhosts", ".xauthority"),
    *("*.tfstate", "*.tfstate.*", "*.tfvars", "*.tfvars.json"),
    # What was typed and browsed.
    *("*_history", ".*history", ".histfile", ".lesshst", ".viminfo", "cookies.sqlite"),
    *("logins.json", "key[34].db", "login data"),
    *("names:secrets", "content:private-key"),
)
"""What is denied by default; matched without regard to case.

A pattern with a slash matches consecutive parts. A pattern that begins with `!` makes an exception.
`names:secrets` stands for names such as `github_token` and `credentials-prod.json`, but not for
source code such as `token.py`; `content:private-key` looks into files.
"""

CONTENT = "content:private-key"
NAMES = "names:secrets"
_SETTINGS = r"\.(?:json|ya?ml|toml|ini|cfg|conf|config|properties|xml|env)"
_DATA = rf"(?:{_SETTINGS}|\.txt|\.csv)"
_SERVICES = "access|api|auth|bearer|bot|deploy|gh|github|gitlab|hf|npm|pypi|refresh|slack|vault"
_SECRETS = re.compile(
    rf"(?:.*[-_.])?(?:(?:{_SERVICES})[-_]?token|(?:access|api|deploy)[-_]?keys?){_DATA}?"
    rf"|.*credential.*{_DATA}|.*[-_.]token{_DATA}|.*[-_](?:secrets?|passwords){_DATA}"
    rf"|secrets?[-_].*{_SETTINGS}|(?:rootkey|secret[-_]key|g?shadow|passwd|htpasswd){_DATA}"
)
"""A folder with source code may well be called `some-token`, so these have an ending of data."""

MAX_NAMES = 8
"""How many suffixes are removed from the names of copies of copies."""

SCANNED_BYTES = 4 << 20
"""How far into a file to look for a private key."""

_COPIES = frozenset(
    [
        "bak",
        "backup",
        "old",
        "orig",
        "original",
        "save",
        "saved",
        "sav",
        "swp",
        "swo",
        "swn",
        "swx",
        "tmp",
        "temp",
        "copy",
        "prev",
        "previous",
        *("bk", "bkp", "bck", "disabled", "deleted", "removed", "rar", "lz4", "lzma", "br"),
        "rej",
        "new",
        "dpkg",
        "ucf",
        "dist",
        "rpmsave",
        "rpmnew",
        "rpmorig",
        "un",
        "gz",
        "bz2",
        "xz",
        "zst",
        "zip",
        "tar",
        "tgz",
        "7z",
    ]
)
"""Suffixes of the names of copies, besides numbers and dates."""

_TEXTS = frozenset(["txt", "text"])
"""Suffixes of copies only after another ending: `server.key.txt`, but not `world_history.txt`."""

_BEFORE = re.compile(r"^(?:~\$|\.?#|copy of |copy_of_|backup[-_. ](?:of[-_. ])?|old[-_.]|bak[-_.])")
_KEY = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rb"|PuTTY-User-Key-File-[0-9]|AGE-SECRET-KEY-1"
)
_WORDS = (b"PRIVATE KEY", b"PuTTY-User-Key-File-", b"AGE-SECRET-KEY-1")
_KEY_FOLLOWS_BYTES = 1_000
_BODY = re.compile(rb"[A-Za-z0-9+/]{40}")


class Denials:
    """Patterns with `*`, `?` and `[...]`; each matches one part of a path."""

    def __init__(self, patterns: Iterable[str] = DEFAULT_DENIALS) -> None:
        self.patterns = tuple(dict.fromkeys(patterns))
        denied = [each for each in self.patterns if not each.startswith("!")]
        self._denied = _Names([each for each in denied if "/" not in each])
        self._allowed = _Names([each[1:] for each in self.patterns if each.startswith("!")])
        self._paths = [
            [_Names([part]) for part in each.split("/")] for each in denied if "/" in each
        ]
        self.looks_inside = CONTENT in self.patterns
        self._knows_secrets = NAMES in self.patterns

    def forbid(self, parts: Sequence[str]) -> bool:
        """Return whether one of these parts is denied; a denied folder includes its content."""
        named = [_names_of(part) for part in parts]
        if any(self._deny(names) and not self._allowed.match(names) for names in named):
            return True
        return any(
            all(part.match(names) for part, names in zip(path, named[at:], strict=False))
            for path in self._paths
            for at in range(len(named) - len(path) + 1)
        )

    def _deny(self, names: Sequence[str]) -> bool:
        return self._denied.match(names) or (
            self._knows_secrets and any(_SECRETS.fullmatch(name) for name in names)
        )


class _Names:
    """Patterns grouped by form, because large folders are matched file by file."""

    def __init__(self, patterns: Iterable[str]) -> None:
        folded = [_folded(pattern) for pattern in patterns]
        self._exact = frozenset(filter(_is_plain, folded))
        rest = [each for each in folded if not _is_plain(each)]
        ends = {each for each in rest if each[0] == "*" and _is_plain(each[1:])}
        starts = {each for each in rest if each[-1] == "*" and _is_plain(each[:-1])}
        self._ends = tuple(each[1:] for each in ends)
        self._starts = tuple(each[:-1] for each in starts)
        others = [each for each in rest if each not in ends | starts]
        joined = "|".join(map(fnmatch.translate, others))
        self._others = re.compile(joined) if joined else None

    def match(self, names: Sequence[str]) -> bool:
        return any(
            name in self._exact
            or name.endswith(self._ends)
            or name.startswith(self._starts)
            or (self._others is not None and self._others.match(name) is not None)
            for name in names
        )


def _is_plain(text: str) -> bool:
    return not set(text) & set("*?[")


def holds_private_key(data: bytes) -> bool:
    """Return whether the bytes contain a private key, and not just the words for one."""
    if not any(word in data for word in _WORDS):
        return False
    for found in _KEY.finditer(data):
        if _BODY.search(data, found.start(), found.end() + _KEY_FOLLOWS_BYTES):
            return True
    return False


@lru_cache(maxsize=8_192)
def _names_of(part: str) -> tuple[str, ...]:
    """Return the name of a part, and the names of files it may be a copy of."""
    name = _folded(part)
    names = [name]
    while len(names) < MAX_NAMES:
        bare = _BEFORE.sub("", _without_ending(name))
        if bare == name or not bare:
            break
        name = bare
        names.append(name)
    if name.startswith(".") and len(names) > 1:  # vim: `.server.key.swp` belongs to `server.key`
        names.append(name[1:])
    return tuple(names)


def _without_ending(name: str) -> str:
    """Remove one suffix of a copy: `key~`, `key-`, `key.bak`, `key-2`, `key (1)`, `key#`."""
    if name.endswith(("~", "#", "-", "_")):
        return name.rstrip("~#-_")
    if name.endswith(")"):
        return name.rpartition("(")[0].rstrip()
    at = max(name.rfind(each) for each in "._ -")
    bare, ending = name[: max(at, 0)], name[at + 1 :]
    is_copy = ending.rstrip("0123456789") in _COPIES or ending.isdecimal()
    return bare if bare and (is_copy or (ending in _TEXTS and "." in bare)) else name


def _folded(text: str) -> str:
    """Normalise a name as file systems do: some treat `.ENV` and `.env` as one file.

    They also ignore invisible characters, and dots and spaces at the end.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        text = "".join(each for each in text if unicodedata.category(each) != "Cf")
    return text.casefold().rstrip(". ") or text
