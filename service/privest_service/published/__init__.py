"""Published answers: tables under a name, which others read without a charge."""
