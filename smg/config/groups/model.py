"""Models: tokenizers, templates, parsers and media."""

from typing import Annotated, Literal

from smg.config.option import Group, option


class ModelSettings(Group, frozen=True):
    """Tokenizer, chat template and parsers; by default all come from the engine or its model.

    In the file, ``models`` has the same settings for single models, which win over these."""

    model_path: Annotated[
        str | None,
        option(
            "--model-path",
            "Where the model's tokenizer is, instead of the engine's bundle: a directory or file (docs/tokenizers.md); "
            "a hub name (org/name) is only used when the engine has no tokenizer.",
            "--model",
        ),
    ] = None
    tokenizer_path: Annotated[
        str | None,
        option(
            "--tokenizer-path",
            "Tokenizer directory or file, as for --model-path, which it wins over, or a hub name (org/name, "
            "org/name@revision), which is downloaded.",
        ),
    ] = None
    disable_tokenizer_autoload: Annotated[
        bool | None,
        option(
            "--disable-tokenizer-autoload",
            "Fetch no tokenizer when an engine joins; models only have those added through /v1/tokenizers.",
        ),
    ] = None
    chat_template: Annotated[
        str | None, option("--chat-template", "Jinja chat template file; wins over the model's own.")
    ] = None
    chat_template_content_format: Annotated[
        Literal["auto", "string", "openai"] | None,
        option(
            "--chat-template-content-format",
            "How the chat template wants a message's content: as one text, or as a list of parts (openai); auto, the "
            "default: what the template turns out to take, role by role.",
        ),
    ] = None
    reasoning_parser: Annotated[
        str | None, option("--reasoning-parser", "Reasoning parser of all models; default: by model.")
    ] = None
    tool_call_parser: Annotated[
        str | None, option("--tool-call-parser", "Tool-call parser of all models; default: by model.")
    ] = None
    unknown_tool_policy: Annotated[
        Literal["forward", "drop", "text"] | None,
        option(
            "--unknown-tool-policy",
            "What a call of a tool that was not offered becomes: a call, nothing, or text; default: a call if the "
            "model marked it as one, else text.",
        ),
    ] = None
    marker_match: Annotated[
        Literal["token", "text"] | None,
        option(
            "--marker-match",
            "What counts as a marker of reasoning or calls that the vocabulary has as a token: only that token (the "
            "default), or its text however the model spells it (for fine-tunes that write markers in pieces).",
        ),
    ] = None


class TokenizerCacheSettings(Group, frozen=True):
    """What is remembered of encoded prompts. All bounds hold per tokenizer and worker process."""

    enable_l0: Annotated[
        bool, option("--tokenizer-cache-enable-l0", "Remember the token ids of whole prompts (level 0).")
    ] = True
    l0_max_entries: Annotated[
        int, option("--tokenizer-cache-l0-max-entries", "Prompts remembered at most in level 0.", ge=1)
    ] = 10_000
    l0_max_memory: Annotated[int, option("--tokenizer-cache-l0-max-memory", "Bytes of level 0 at most.", ge=1)] = (
        50 << 20
    )
    enable_l1: Annotated[
        bool,
        option(
            "--tokenizer-cache-enable-l1",
            "Remember the token ids of how prompts begin (level 1), so that a longer conversation encodes only its "
            "last turn; used only for tokenizers that prove at load time that it changes nothing.",
        ),
    ] = True
    l1_max_memory: Annotated[int, option("--tokenizer-cache-l1-max-memory", "Bytes of level 1 at most.", ge=1)] = (
        50 << 20
    )


class MediaSettings(Group, frozen=True):
    """Images, audio and video in requests: where they may come from, how large they may be, and what works on them."""

    allowed_domains: Annotated[
        tuple[str, ...],
        option("--allowed-media-domains", "Hosts that media may be fetched from; default: any public one."),
    ] = ()
    allowed_networks: Annotated[
        tuple[str, ...],
        option(
            "--allowed-media-networks",
            "Networks (CIDR) that media may be fetched from although they are private, loopback or otherwise not "
            "public. Metadata services need an entry of their own.",
        ),
    ] = ()
    allowed_local_path: Annotated[
        str | None,
        option("--allowed-local-media-path", "Directory that file:// URLs may read from; default: none."),
    ] = None
    fetch_timeout_secs: Annotated[
        float,
        option("--media-fetch-timeout-secs", "Time to fetch one item, redirects included; 0: no limit.", ge=0),
    ] = 10.0
    fetch_concurrency: Annotated[
        int, option("--media-fetch-concurrency", "Items of one request that are fetched at a time.", ge=1, le=64)
    ] = 8
    max_items: Annotated[
        int, option("--media-max-items", "Media of one request; a model may take fewer.", ge=1, le=1024)
    ] = 64
    image_max_bytes: Annotated[
        int, option("--image-max-input-bytes", "Bytes of one image as it is sent or fetched.", ge=1)
    ] = 256 << 20
    audio_max_bytes: Annotated[
        int, option("--audio-max-input-bytes", "Bytes of one recording as it is sent or fetched.", ge=1)
    ] = 256 << 20
    audio_max_secs: Annotated[float, option("--audio-max-secs", "Length of one recording.", gt=0, le=86_400)] = 1200.0
    video_max_bytes: Annotated[
        int, option("--video-max-input-bytes", "Bytes of one video as it is sent or fetched.", ge=1)
    ] = 256 << 20
    video_max_decoded_bytes: Annotated[
        int, option("--video-max-decoded-bytes", "Bytes of all frames that are taken of one video, as pixels.", ge=1)
    ] = 8 << 30
    video_sampling: Annotated[
        Literal["huggingface", "vllm"],
        option("--video-sampling", "Whose choice of frames to follow: the Hugging Face processors' or vLLM's."),
    ] = "huggingface"
    decode_timeout_secs: Annotated[
        float, option("--media-decode-timeout-secs", "Time to decode one item; 0: no limit.", ge=0)
    ] = 30.0
    max_pixels: Annotated[int, option("--image-max-pixels", "Pixels of one image.", ge=1, le=357_913_941)] = 178_956_970
    ignore_orientation: Annotated[
        bool, option("--image-ignore-orientation", "Take images as they are stored, not as their EXIF data turns them.")
    ] = False
    resample: Annotated[
        Literal["torchvision", "pillow"],
        option(
            "--mm-resample",
            "Whose pixels to match bit for bit: the fast (torchvision) or the slow (pillow) Hugging Face processors.",
        ),
    ] = "torchvision"
    threads: Annotated[
        int, option("--vision-threads", "Threads per worker process that decode and preprocess media.", ge=1, le=64)
    ] = 1
    tensor_transport: Annotated[
        Literal["inline", "shm", "auto", "rdma"],
        option(
            "--multimodal-tensor-transport",
            "How tensors reach engines of vLLM and TokenSpeed: in messages; by files in /dev/shm, which engines share; "
            "or auto: by files where an engine tells that it does. A worker's label multimodal_tensor_transport wins. "
            "rdma is refused: it is not built.",
        ),
    ] = "inline"
    shm_min_bytes: Annotated[
        int,
        option(
            "--multimodal-shm-min-bytes",
            "Bytes from which on a tensor goes by shared memory; a worker's label multimodal_shm_min_bytes wins.",
            ge=0,
        ),
    ] = 65536
    cache_mb: Annotated[
        int,
        option(
            "--mm-pixel-cache-mb",
            "Preprocessed media that each worker process remembers, in MiB; 0: none.",
            ge=0,
            le=1 << 20,
        ),
    ] = 256
