"""What a release costs, the noise that pays for it, and the gate through which alone answers leave."""
