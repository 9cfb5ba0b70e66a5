"""What went wrong when two sides could not agree on TLS, told from what gRPC says."""

from __future__ import annotations

# The more special first: gRPC says several of them in one text.
_TROUBLES = (
    (
        "WRONG_VERSION_NUMBER",
        (
            "it talks in plain text, and TLS was asked for; leave the certificate authority out (TOPMAST_TLS_CA),"
            " or have it serve TLS"
        ),
    ),
    (
        "Hostname Verification Check failed",
        (
            "its certificate is for other host names; use one of these in the address, or have one made with"
            " `topmast certs init --host`"
        ),
    ),
    ("certificate has expired", "its certificate has ended; have it renewed there with `topmast certs rotate`"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        (
            "its certificate is not signed by the certificate authority that is trusted here; name its authority.pem"
            " with TOPMAST_TLS_CA"
        ),
    ),
    (
        # Said of what was never connected: a server that dies later says it of a call.
        "failed to connect to all addresses; last error: UNAVAILABLE: %s: Socket closed",
        (
            "it closed the connection at once: it may talk TLS only (name its certificate authority with TOPMAST_TLS_CA), or ask for a"
            " certificate that its authority has signed and that has not ended (TOPMAST_TLS_CERTIFICATE, TOPMAST_TLS_KEY)"
        ),
    ),
)


def transport_trouble(said: str) -> str | None:
    """The sentence that says what to do; None when gRPC's words are about something else."""
    return next((sentence for words, sentence in _TROUBLES if all(part in said for part in words.split("%s"))), None)
