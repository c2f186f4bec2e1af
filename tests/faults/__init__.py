"""What happens when things die, stall or leave."""
