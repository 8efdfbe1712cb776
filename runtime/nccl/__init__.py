"""Files that configure NCCL to follow a plan, and folders of files for ranges of message sizes."""
