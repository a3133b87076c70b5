"""What is a secret by its own shape, whatever it is called: tokens of known services, keys, headers, passwords in URLs
and in command lines. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from prismdbg.capsule.secrets import own_rules


@dataclass(frozen=True, slots=True)
class Found:
    """One secret: what it is, in words, and its value, which goes into no message. start: where, -1 if not known."""

    what: str
    value: str
    start: int = -1


# What stands for a value that somebody fills in.
TEMPLATE = re.compile(
    r"\$[{(]|^\$\w+$|\{[^{}\s]*\}|^<.*>$|%[sd(]|\.\.\.|\*{3}|^\\|^(?:your|my)[-_ ]"
    r"|^(?:changeme|xxx+|placeholder|dummy|example)$",
    re.IGNORECASE,
)

# What is a secret whatever stands before it: what it is, a text without which there is none (in lower case, for speed),
# and the pattern; the value is its last group.
_SHAPES: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (what, hint, re.compile(pattern))
    for what, hint, pattern in (
        (
            "password in a URL",
            "://",
            # It may hold a slash, if what stands before it is no port, and ends at the last @ before the path. An IPv6
            # address in brackets is no user.
            r"://(?!\[[\da-fA-F:.]+(?:%[\w.-]+)?\])[^/\s:@'\"]*:((?:[^/\s@'\"]+|(?!(?:\d{1,5}[/?#,]|\$\w+/))[^/\s@'\"](?:(?!://)[^\s@'\"])*+)"
            r"(?:@[^/?#{}<>\s@'\"]+)*)@",
        ),
        ("token in a URL", "://", r"://([A-Za-z0-9_-]{20,})@"),
        (
            "signature or token in a URL",
            "=",
            r"(?i)[?&;](?:x-amz-(?:signature|credential|security-token)|x-goog-(?:signature|credential)|sig|signature"
            r"|access_token|auth_token|token|api_?key|key|secret|password|pwd|awsaccesskeyid)=([^&\s\"'<>]{6,})",
        ),
        (
            "webhook",
            "https://",
            r"(?i)https://(?:hooks\.slack\.com/(?:services|workflows|triggers)/([\w/-]{10,})"
            r"|(?:\w+\.)?discord(?:app)?\.com/api/webhooks/([\w/-]{10,})"
            r"|[\w.-]*(?:webhook\.office\.com|outlook\.office(?:365)?\.com)/webhook\w*/([\w@/-]{10,}))",
        ),
        (
            "Authorization header",
            "authorization",
            r"(?i)\b(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?"
            r"((?:basic|bearer|token|digest|negotiate|apikey|key)\s+[^\s\"',}]{4,}"
            r"|(?=[^\s\"',}(\[]{0,80}\d)[^\s\"',}(\[]{8,})",
        ),
        ("bearer token", "bearer", r"\b[Bb]earer\s+([A-Za-z0-9._~+/=-]{16,})"),
        ("cookie", "cookie:", r"(?i)\b(?:set-)?cookie:\s*([\w.-]+=[\w%+/.=-]{12,})"),
        ("AWS key", "a", r"(A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16})(?![A-Za-z0-9])"),
        ("GitHub token", "gh", r"(gh[pousr]_[A-Za-z0-9]{30,})"),
        ("GitHub token", "github_pat_", r"(github_pat_[A-Za-z0-9_]{30,})"),
        ("GitLab token", "gl", r"(gl(?:pat|ptt|cbt|dt|rt|soat)-[A-Za-z0-9_-]{18,})"),
        ("Hugging Face token", "hf_", r"(hf_[A-Za-z0-9]{30,})"),
        ("API key", "sk", r"(?<![A-Za-z])(sk-[A-Za-z0-9_-]{20,}|sk_(?:live|test)_[A-Za-z0-9]{16,})"),
        ("API key", "nvapi-", r"(nvapi-[\w-]{30,})"),
        ("npm token", "npm_", r"(npm_[A-Za-z0-9]{36})"),
        ("PyPI token", "pypi-ageichlwas5vcmc", r"(pypi-AgEIcHlwaS5vcmc[\w-]{50,})"),
        ("Docker token", "dckr_", r"(dckr_(?:pat|oat)_[\w-]{20,})"),
        ("DigitalOcean token", "_v1_", r"(do[opr]_v1_[a-f0-9]{64})"),
        ("Vault token", "hv", r"(?<![\w.])(hv[sbr]\.[\w-]{24,})"),
        ("Linear key", "lin_api_", r"(lin_api_[A-Za-z0-9]{40})"),
        ("API key", "r8_", r"(r8_[A-Za-z0-9]{30,})"),
        ("Groq key", "gsk_", r"(?<!\w)(gsk_[A-Za-z0-9]{30,})"),
        ("LangSmith key", "lsv2_", r"(lsv2_(?:pt|sk)_[A-Za-z0-9]{20,}(?:_[A-Za-z0-9]+)?)"),
        ("Databricks token", "dapi", r"(?<!\w)(dapi[a-f0-9]{32}(?:-\d)?)(?!\w)"),
        ("Perplexity key", "pplx-", r"(?<!\w)(pplx-[A-Za-z0-9]{30,})"),
        ("xAI key", "xai-", r"(?<!\w)(xai-[A-Za-z0-9]{40,})"),
        ("Pinecone key", "pcsk_", r"(?<!\w)(pcsk_[A-Za-z0-9_]{30,})"),
        ("Grafana token", "gl", r"(?<!\w)(gl(?:sa|c)_[A-Za-z0-9+/=_]{30,})"),
        ("Shopify token", "shp", r"(?<!\w)(shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32})"),
        ("Atlassian token", "atatt3x", r"(ATATT3x[A-Za-z0-9_=-]{30,})"),
        ("New Relic key", "nra", r"(?<!\w)(NRA[KA]-[A-Z0-9]{20,})"),
        ("Doppler token", "dp.", r"(?<![\w.])(dp\.(?:pt|st|sa|ct|scim|audit)\.[\w.-]{30,})"),
        ("Fireworks key", "fw_", r"(?<!\w)(fw_[A-Za-z0-9]{20,})(?!\w)"),
        ("Square token", "sq0", r"(sq0(?:atp|csp|idp)-[\w-]{20,})"),
        ("Terraform token", ".atlasv1.", r"(?<!\w)([A-Za-z0-9]{10,}\.atlasv1\.[\w=-]{40,})"),
        ("Mailgun key", "key-", r"(?<![\w-])(key-[a-f0-9]{32})(?!\w)"),
        ("Tailscale key", "tskey-", r"(tskey-[A-Za-z0-9-]{20,})"),
        ("Figma token", "figd_", r"(?<!\w)(figd_[\w-]{30,})"),
        ("Postman key", "pmak-", r"(PMAK-[a-f0-9]{24}-[a-f0-9]{34})"),
        ("Netlify token", "nfp_", r"(?<!\w)(nfp_[A-Za-z0-9]{30,})"),
        ("RubyGems key", "rubygems_", r"(rubygems_[a-f0-9]{40,})"),
        ("Tavily key", "tvly-", r"(?<!\w)(tvly-[A-Za-z0-9-]{20,})"),
        ("password hash", "$", r"(?<![\w$])(\$(?:1|2[aby]|5|6|7|y|argon2\w{1,2})\$[\w./=,$+-]{20,})"),
        ("password in SQL", "identified", r"(?i)\bidentified\s+by\s+(?:password\s+)?['\"]([^'\"\s]{3,})['\"]"),
        ("password of a command", "pass:", r"[\s\"']-pass(?:in|out)?[\s\"',]{1,80}pass:([^\s\"']{3,})"),
        (
            "password for a proxy",
            "_proxy",
            r"(?i)\b\w*_proxy\s*=\s*[\"']?[^\s:@/\"']{1,128}:([^\s@/\"']{2,1024})@[\w.-]+",
        ),
        (
            "user and password",
            "-u",
            r"\b(?:curl|wget|http)\b[^\n|;&]{0,200}?[\s\"'](?:-u|--user)[\s=\"',]{1,80}[^\s:\"']+:([^\s\"']{3,})",
        ),
        ("password of a command", "-p", r"\bsshpass[\s\"',]{1,80}-p[\s\"',]{0,80}([^\s\"',][^\s\"']{2,})"),
        ("password of a command", "-p", r"\b(?:mysql|mariadb)(?:dump|admin)?\b[^\n|;&]{0,200}?[\s\"']-p([^\s\"']{3,})"),
        (
            "value in XML",
            "</",
            r"(?i)<((?:[\w.-]*(?:password|passwd|secret|passphrase|apikey|api_key|token)))>\s*([^<\s]{3,})\s*</\1>",
        ),
        (
            "value of a name",
            "value",
            r"(?i)\bname[\"']?\s*:\s*[\"']?[\w.-]*(?:password|passwd|secret|passphrase|api_?key|token)[\"']?\s*[,\n]"
            r"\s*[\"']?value[\"']?\s*:\s*[\"']?([^\s\"',}]{3,})",
        ),
        ("Slack token", "xox", r"(xox[abeposr]-[A-Za-z0-9-]{10,})"),
        ("Slack token", "xapp-", r"(xapp-[A-Za-z0-9-]{10,})"),
        ("Google key", "aiza", r"(AIza[A-Za-z0-9_-]{35})"),
        ("Google token", "ya29.", r"(ya29\.[A-Za-z0-9_-]{20,})"),
        ("JSON web token", ".eyj", r"(?<![A-Za-z0-9_-])(eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"),
        (
            "private key",
            "private key",
            r"(-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
            # To its end, with headers such as `DEK-Info: AES-128-CBC`; of a text that was cut what looks like a key's.
            r"(?:(?:[^-]|-(?!----)){0,20000}+-----END [A-Z ]*-----"
            r"|(?:(?:\s|\\[nr]|\| ){1,80}+(?:[A-Z][A-Za-z-]{1,30}: [^\n\\]{0,200}+|[A-Za-z0-9+/=]{16,}+)){1,400}+)?)",
        ),
        ("age identity", "age-secret-key-1", r"(AGE-SECRET-KEY-1[A-Z0-9]{50,})"),
        ("Telegram bot", "api.telegram.org", r"(?i)api\.telegram\.org/bot([0-9]{6,}:[\w-]{20,})"),
    )
)


def find_shapes(text: str) -> Iterator[Found]:
    lowered = text.lower()
    for what, hint, pattern in _SHAPES:
        for match in pattern.finditer(text) if hint in lowered else ():
            group = match.lastindex or 0
            if what == "private key" or not TEMPLATE.search(match[group]):
                yield Found(what, match[group], match.start(group))
    for start, value in own_rules.find_values(text):
        yield Found("a value of your own rules", value, start)
