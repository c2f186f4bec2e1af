"""Images, video and audio: fetch, decode, one file per model family."""
