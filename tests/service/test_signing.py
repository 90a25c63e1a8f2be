"""Signatures: made by one key, true for its public key and for the signed bytes alone."""

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from privest_service.signing import Signer, is_signature, key_id, new_signing_key


def test_a_signature_is_true_for_its_key_and_content_alone() -> None:
    signer, other = Signer(new_signing_key()), Signer(new_signing_key())
    signature = signer.sign(b"content")
    assert signer.id == key_id(signer.public_key) != other.id
    assert is_signature(signature, b"content", signer.public_key)
    assert not is_signature(signature, b"Content", signer.public_key)
    assert not is_signature(signature, b"content", other.public_key)


@pytest.mark.parametrize(
    ("signature", "key"), [("", None), ("no base64", None), ("AAAA", None), (None, "AAAA")]
)
def test_what_is_no_signature_or_no_key_is_not_true(signature: str | None, key: str | None) -> None:
    signer = Signer(new_signing_key())
    told = signer.sign(b"content") if signature is None else signature
    assert not is_signature(told, b"content", key or signer.public_key)


def test_a_key_of_another_kind_is_refused_in_words() -> None:
    pem = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(ValueError, match="PRIVEST_SIGNING_KEY_FILE must hold an Ed25519 private key"):
        Signer(pem)
