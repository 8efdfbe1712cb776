"""Programs of others on the same networks, beside ours."""
