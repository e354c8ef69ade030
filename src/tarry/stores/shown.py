"""Shown: the URL of a store as it may be shown: without its passwords (pure)."""


def shown_url(url: str) -> str:
    """Return *url* as it may be shown: passwords are left out."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    before, question, query = rest.partition("?")
    # A password may hold slashes that should have been escaped; a path alone holds no password.
    credentials, at, host = ("", "", before) if rest[:1] == "/" else before.rpartition("@")
    if at:
        user, colon, _ = credentials.partition(":")
        credentials = f"{user}{colon and ':***'}"
    pairs = []
    for pair in query.split("&"):
        name, equals, _ = pair.partition("=")
        pairs.append(f"{name}{equals}***" if "password" in name else pair)
    return f"{scheme}://{credentials}{at}{host}{question}{'&'.join(pairs)}"
