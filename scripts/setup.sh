# The steps that make the environment, for env.sh; nothing here runs until clue_setup is called.
# Output goes to stderr, so that `scripts/run clue ... --json` prints nothing but JSON.

clue_say() { printf '[clue] %s\n' "$*" >&2; }

# Which ROS: "wheels", or the distribution that is sourced.
clue_which_ros() {
    if [[ -n "${ROS_DISTRO:-}" && -n "${AMENT_PREFIX_PATH:-}" ]]; then
        echo "$ROS_DISTRO"
    else
        echo wheels
    fi
}

# ------------------------------------------------------------------------------ system packages

# Installs packages when root, else says how; false if they are still missing.
clue_apt() { # WHAT-FOR PACKAGE...
    local why="$1" command
    shift
    command="apt-get update && apt-get install -y --no-install-recommends $*"
    if [[ $EUID -eq 0 ]] && command -v apt-get >/dev/null; then
        clue_say "missing for $why, installing: $*"
        if (apt-get update && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends "$@") </dev/null >>"$CLUE_LOG" 2>&1; then
            return 0
        fi
        clue_say "this failed (see $CLUE_LOG): $command"
    elif command -v apt-get >/dev/null; then
        clue_say "missing for $why; install with: sudo sh -c '$command'"
    else
        clue_say "missing for $why: $* (names of Debian packages)"
    fi
    return 1
}

clue_system_packages() {
    local missing=()
    command -v cmake >/dev/null || missing+=(cmake)
    command -v make >/dev/null || missing+=(make)
    command -v g++ >/dev/null || missing+=(g++)
    ((${#missing[@]} == 0)) || clue_apt "building clue_msgs" "${missing[@]}"
}

clue_debian() { # WHAT-FOR PACKAGE...: installs those of the packages that are missing
    local why="$1" missing=() package
    shift
    command -v dpkg-query >/dev/null || return 0
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing+=("$package")
    done
    ((${#missing[@]} == 0)) || clue_apt "$why (the rest works without it)" "${missing[@]}"
}

# Installs the Debian packages of extras. A failure does not stop the set-up.
clue_extra_packages() { # EXTRA...
    [[ " $* " =~ " voice "|" all " ]] && clue_debian "speech output" espeak-ng
    [[ " $* " =~ " lab "|" all " ]] && clue_debian "the tabletop simulator" \
        libegl1 libgl1-mesa-dri libvulkan1 mesa-vulkan-drivers
    [[ " $* " == *" dev "* ]] && ! command -v chromium chromium-browser google-chrome >/dev/null &&
        clue_apt "the tests of the web pages (they are skipped without it)" chromium
    return 0
}

# --------------------------------------------------------------------------------------- Python

# Prints "ok", or what keeps this Python from being used: "missing PACKAGE..." or "unfit REASON".
clue_probe_python() { # PYTHON
    "$1" -I - "$CLUE_ROS" <<'PY' 2>/dev/null || echo "unfit it does not run"
import importlib.util, os, sys, sysconfig

version = "%d.%d" % sys.version_info[:2]
need = []
if not (3, 10) <= sys.version_info[:2] <= (3, 13):
    print("unfit it is Python", version)
    sys.exit()
if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
    need.append(f"python{version}-venv")
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    need.append(f"python{version}-dev")
print("missing " + " ".join(need) if need else "ok")
PY
}

# Sets CLUE_BASE_PYTHON to a Python 3.10 .. 3.13 that can make environments and build extensions.
clue_find_python() {
    local candidates=(python3 python3.10 python3.11 python3.12 python3.13) name answer seen=""
    [[ -n "${CLUE_PYTHON:-}" ]] && candidates=("$CLUE_PYTHON")
    local almost="" almost_needs=""
    for name in "${candidates[@]}"; do
        command -v "$name" >/dev/null || continue
        answer="$(clue_probe_python "$name")"
        if [[ "$CLUE_ROS" != wheels && "$answer" != unfit* ]] &&
            ! "$name" -c 'import rclpy' >/dev/null 2>&1; then
            answer="unfit it cannot import the rclpy of ROS 2 $CLUE_ROS"
        fi
        case "$answer" in
            ok)
                CLUE_BASE_PYTHON="$(command -v "$name")"
                return 0
                ;;
            missing*) [[ -z "$almost" ]] && almost="$name" almost_needs="${answer#missing }" ;;
            *) seen+="$name (${answer#unfit }) " ;;
        esac
    done
    if [[ -n "$almost" ]]; then
        # shellcheck disable=SC2086  # several package names
        clue_apt "Python" $almost_needs || return 1
        CLUE_BASE_PYTHON="$(command -v "$almost")"
        return 0
    fi
    clue_say "no usable Python 3.10 to 3.13 here. Tried: ${seen:-${CLUE_PYTHON:-nothing is installed}}"
    if [[ "$CLUE_ROS" != wheels ]]; then
        clue_say "to use ROS 2 from wheels instead, start from a shell where no ROS is sourced"
        return 1
    elif [[ -z "${CLUE_PYTHON:-}" ]]; then
        clue_apt "Python" python3 python3-venv python3-dev && CLUE_BASE_PYTHON="$(command -v python3)" &&
            [[ "$(clue_probe_python "$CLUE_BASE_PYTHON")" == ok ]] && return 0
    fi
    clue_say "install a Python 3.10, 3.11, 3.12 or 3.13 and name it: CLUE_PYTHON=/path/to/python"
    return 1
}

clue_make_venv() {
    local options=()
    if [[ -L "$CLUE_VENV_DIR" ]]; then # "venv --clear" would empty what it points to
        clue_say "$CLUE_VENV_DIR is a link, and an environment belongs to one checkout: remove the link,"
        clue_say "or name another folder as CLUE_VENV"
        return 1
    fi
    if [[ -n "$(ls -A "$CLUE_VENV_DIR" 2>/dev/null)" && ! -e "$CLUE_VENV_DIR/pyvenv.cfg" ]]; then
        clue_say "$CLUE_VENV_DIR holds something else than an environment; name another as CLUE_VENV"
        return 1
    fi
    clue_find_python || return 1
    [[ "$CLUE_ROS" != wheels ]] && options=(--system-site-packages)
    clue_say "Python: $("$CLUE_BASE_PYTHON" -V 2>&1) ($CLUE_BASE_PYTHON), environment: $CLUE_VENV_DIR"
    clue_logged "$CLUE_BASE_PYTHON" -m venv --clear "${options[@]}" "$CLUE_VENV_DIR"
}

# ------------------------------------------------------------------------------------- packages

# Runs a command with its output in the log; on failure shows the end of the log.
clue_logged() {
    echo "+ $*" >>"$CLUE_LOG"
    "$@" </dev/null >>"$CLUE_LOG" 2>&1 && return 0
    clue_say "failed: $*"
    tail -n 30 "$CLUE_LOG" >&2
    clue_say "the whole log: $CLUE_LOG"
    return 1
}

clue_pip() { # pip install ..., showing what is fetched
    local status
    echo "+ pip install $*" >>"$CLUE_LOG"
    "$CLUE_VENV_DIR/bin/python" -m pip install --disable-pip-version-check --no-input \
        --progress-bar off "$@" </dev/null 2>&1 | tee -a "$CLUE_LOG" |
        sed -u -n -E 's/^ *Downloading ([^ ]*\/)?([^ \/]+ \([0-9.]+ [MG]B\)).*/[clue]   fetching \2/p' >&2
    status=${PIPESTATUS[0]}
    if [[ $status -ne 0 ]]; then
        clue_say "pip could not install: $*"
        grep -E '^ERROR' "$CLUE_LOG" | tail -n 5 >&2
        clue_say "the whole log: $CLUE_LOG"
    fi
    return "$status"
}

clue_has_gpu() { [[ -e /proc/driver/nvidia/version ]] || command -v nvidia-smi >/dev/null; }

# True if the torch that pip would take brings CUDA along (pip's own answer, nothing is fetched).
clue_torch_is_cuda() { # REQUIREMENT
    "$CLUE_VENV_DIR/bin/python" -m pip install --dry-run --quiet --no-deps --report - "$1" \
        2>>"$CLUE_LOG" </dev/null | grep -q '"nvidia-'
}

# torch, where an extra wants it, alone and first: which of its builds is taken is decided here.
clue_install_torch() {
    local torch
    torch="$(grep -E '^torch==' "$CLUE_VENV_DIR/requirements.txt")" || return 0
    if [[ -n "${CLUE_TORCH_INDEX:-}" ]]; then
        clue_pip --index-url "$CLUE_TORCH_INDEX" "$torch"
        return
    fi
    if ! clue_has_gpu && clue_torch_is_cuda "$torch"; then
        clue_say "no NVIDIA GPU here: looking for a CPU build of $torch"
        # uv knows where PyTorch's CPU builds lie, so that no address is written here
        clue_pip uv==0.13.9 &&
            "$CLUE_VENV_DIR/bin/uv" pip install --python "$CLUE_VENV_DIR/bin/python" \
                --torch-backend cpu "$torch" </dev/null >>"$CLUE_LOG" 2>&1 && return
        clue_say "no CPU build could be reached; taking the default one, with gigabytes of CUDA that"
        clue_say "are not needed here (CLUE_TORCH_INDEX=<address of PyTorch's CPU wheels> avoids it)"
    fi
    clue_pip "$torch"
}

# ROS 2 and what builds clue_msgs.
clue_install_ros() {
    local python="$CLUE_VENV_DIR/bin/python" root="$CLUE_ROOT" constraints
    constraints="$(clue_constraints)"
    clue_pip -r "$root/requirements-build.txt" || return 1
    if [[ "$CLUE_ROS" == wheels ]]; then
        clue_say "installing ROS 2 Kilted wheels"
        clue_pip -r "$root/requirements-ros.txt" -c "$constraints" || return 1
        clue_logged "$python" "$root/scripts/patch_ros_wheels.py" "$CLUE_VENV_DIR"
        return
    fi
    clue_say "using ROS 2 $CLUE_ROS as sourced"
    # keep what the robot's own extensions were built against
    "$python" - >"$constraints" <<'PY' || return 1
import numpy

print(f"numpy=={numpy.__version__}")
print("empy<4")
PY
    "$python" -c 'import cv2' 2>/dev/null || clue_pip "opencv-python-headless<4.11" -c "$constraints"
}

clue_constraints() {
    [[ "$CLUE_ROS" == wheels ]] && echo "$CLUE_ROOT/requirements-constraints.txt" ||
        echo "$CLUE_VENV_DIR/constraints.txt"
}

clue_install_packages() {
    # shellcheck disable=SC2086  # several names
    clue_extra_packages $CLUE_EXTRAS
    clue_say "installing the packages of the robot${CLUE_EXTRAS:+ and of: $CLUE_EXTRAS}"
    clue_install_torch && clue_pip -r "$CLUE_VENV_DIR/requirements.txt" -c "$(clue_constraints)"
}

# ------------------------------------------------------------------------------ clue_msgs, clue_ros

# Builds an interface package with cmake.
clue_build_interfaces() ( # SOURCE BUILD INSTALL
    local venv="$CLUE_VENV_DIR" prefix="${AMENT_PREFIX_PATH:-}" options=(-DBUILD_TESTING=OFF
        -DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=$3"
        "-DPython3_EXECUTABLE=$CLUE_VENV_DIR/bin/python" -DPython3_FIND_VIRTUALENV=ONLY)
    if [[ "$CLUE_ROS" == wheels ]]; then
        [[ ":$prefix:" == *":$venv:"* ]] || prefix="$venv${prefix:+:$prefix}"
        options+=("-DCMAKE_PROJECT_INCLUDE=$CLUE_ROOT/scripts/rclpy_only.cmake")
    fi
    export PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv"
    export AMENT_PREFIX_PATH="$prefix" CMAKE_PREFIX_PATH="$prefix"
    clue_logged cmake -S "$1" -B "$2" "${options[@]}" &&
        clue_logged cmake --build "$2" --parallel "$(nproc 2>/dev/null || echo 2)" &&
        clue_logged cmake --install "$2"
)

# Built beside the old one and swapped in, so that running nodes keep theirs while it lasts.
clue_build_msgs() {
    local venv="$CLUE_VENV_DIR" new="$CLUE_VENV_DIR/ros.new" module
    clue_say "building clue_msgs"
    rm -rf "$new" && mkdir -p "$new" || return 1
    clue_build_interfaces "$CLUE_ROOT/clue_msgs" "$new/build" "$new/install" || return 1
    module="$(cd "$new" && find install -path '*/clue_msgs/msg/__init__.py')"
    if [[ -z "$module" ]]; then
        clue_say "there are no Python modules of clue_msgs, see $CLUE_LOG"
        return 1
    fi
    echo "$venv/ros/${module%/clue_msgs/msg/__init__.py}" >"$new/python_path"
    rm -rf "$new/build" "$venv/ros" && mv "$new" "$venv/ros"
}

# Links the index entry, the share folder and the executables, as `colcon build --symlink-install`
# would, so that ros2 run and ros2 launch find the checkout.
clue_write_overlay() {
    local venv="$CLUE_VENV_DIR" name
    rm -rf "$venv/share/clue_ros" "$venv/lib/clue_ros"
    mkdir -p "$venv/share/ament_index/resource_index/packages" "$venv/share/clue_ros" \
        "$venv/lib/clue_ros" || return 1
    : >"$venv/share/ament_index/resource_index/packages/clue_ros"
    for name in package.xml config models demo; do
        ln -s "$CLUE_ROOT/$name" "$venv/share/clue_ros/$name"
    done
    # ros2 launch does not look into a folder that is a link
    cp -rs "$CLUE_ROOT/launch" "$venv/share/clue_ros/launch"
    for name in $("$venv/bin/python" -c 'from importlib.metadata import distribution
print(*(script.name for script in distribution("clue_ros").entry_points))'); do
        ln -s "$venv/bin/$name" "$venv/lib/clue_ros/$name"
    done
}

clue_install_self() {
    clue_say "installing clue_ros, editable"
    clue_logged "$CLUE_VENV_DIR/bin/python" -m pip install --disable-pip-version-check --no-input \
        --no-deps --no-build-isolation --editable "$CLUE_ROOT" && clue_write_overlay
}

# ---------------------------------------------------------------------------------------- stamps

clue_hash() { cat -- "$@" 2>/dev/null | sha256sum | cut -d' ' -f1; }

# Runs a step unless its stamp says that it was done from the same things.
clue_step() { # NAME KEY FUNCTION
    local stamp="$CLUE_VENV_DIR/stamps/$1"
    [[ -e "$stamp" && "$(<"$stamp")" == "$2" ]] && return 0
    local begin=$SECONDS
    rm -f "$stamp"
    "$3" || return 1
    mkdir -p "$CLUE_VENV_DIR/stamps" && printf '%s\n' "$2" >"$stamp"
    clue_say "  done: $1 ($((SECONDS - begin)) s)"
}

clue_all_steps() {
    local root="$CLUE_ROOT" venv="$CLUE_VENV_DIR" key="$CLUE_ROS $CLUE_VENV_DIR ${CLUE_PYTHON:-}"
    local ros build status
    # an interpreter that went away or changed its minor version makes a new environment
    key+=" $("$venv/bin/python" -V 2>/dev/null | cut -d. -f1,2)"
    if [[ "$(cat "$venv/stamps/python" 2>/dev/null)" != "$key" ]]; then
        clue_system_packages && clue_make_venv || return 1
        key="$CLUE_ROS $CLUE_VENV_DIR ${CLUE_PYTHON:-} $("$venv/bin/python" -V | cut -d. -f1,2)"
        clue_step python "$key" true || return 1
    fi
    clue_has_gpu && CLUE_EXTRAS+=" torch" # which runs models there
    # the extras that are wanted now, and those of earlier calls: none is taken away
    CLUE_EXTRAS="$(printf '%s\n' ${CLUE_EXTRAS:-} $(cat "$venv/extras" 2>/dev/null) | sort -u | xargs)"
    # shellcheck disable=SC2086  # several names
    "$venv/bin/python" -I -S "$root/clue_ros/requirements.py" $CLUE_EXTRAS \
        >"$venv/requirements.txt" || return 1

    ros="$(clue_hash "$root"/requirements-{build,ros,constraints}.txt "$root/scripts/patch_ros_wheels.py")"
    clue_step ros "$ros" clue_install_ros || return 1
    # The compiler works while packages are fetched: both need ROS and nothing of each other.
    key="$ros $(clue_hash "$root/scripts/rclpy_only.cmake") $(find "$root/clue_msgs" -type f -not -name '.*' -print0 | LC_ALL=C sort -z |
        xargs -0 sha256sum | sed "s|$root/||" | sha256sum | cut -d' ' -f1)"
    (CLUE_LOG+=.msgs && clue_step clue_msgs "$key" clue_build_msgs) &
    build=$!
    key="$ros ${CLUE_TORCH_INDEX:-} $(sort "$venv/requirements.txt" | clue_hash)"
    clue_step packages "$key" clue_install_packages
    status=$?
    wait "$build" && ((status == 0)) || return 1
    echo "$CLUE_EXTRAS" >"$venv/extras"
    key="$root $(clue_hash "$root"/{setup.py,setup.cfg,package.xml} \
        "$root"/clue_ros/{requirements,nodes/programs}.py)"
    clue_step clue_ros "$key" clue_install_self
}

clue_setup() {
    local status
    CLUE_ROS="$(clue_which_ros)"
    CLUE_VENV_DIR="${CLUE_VENV:-$CLUE_ROOT/.venv}"
    [[ "$CLUE_ROS" == wheels ]] || CLUE_VENV_DIR+="-$CLUE_ROS"
    CLUE_LOG="$CLUE_VENV_DIR.log"
    # two set-ups at once would break each other
    if command -v flock >/dev/null; then
        exec 9>"$CLUE_VENV_DIR.lock" || return 1
        flock -n 9 || { clue_say "another set-up is running, waiting for it" && flock 9; }
    fi
    clue_all_steps
    status=$?
    exec 9>&-
    return $status
}
