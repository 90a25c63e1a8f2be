"""Keys derived from the service's secret, and the ciphers for what the database keeps of others' secrets."""

from base64 import urlsafe_b64encode

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


def derived(secret: bytes, purpose: bytes) -> bytes:
    """A key of 32 bytes for one purpose, from which neither the secret nor other keys follow."""
    return HKDF(SHA256(), 32, salt=None, info=purpose).derive(secret)


def cipher(secret: bytes, purpose: bytes) -> Fernet:
    """A cipher for one purpose: the database alone opens nothing."""
    return Fernet(urlsafe_b64encode(derived(secret, purpose)))
