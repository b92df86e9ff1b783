"""From what a factory says (OCR, voice, scanners, AGV logs) to commands that the MES carries out."""
