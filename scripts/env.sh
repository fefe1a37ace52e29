# Sourced by scripts/run, install, test and demo: makes the environment if needed, then enters it.
# Also for an interactive shell: `source scripts/env.sh` (bash).
#
# It makes, in .venv (.venv-DISTRO where a ROS 2 is sourced): a virtual environment, ROS 2 wheels if
# no ROS is sourced, clue_msgs, the pinned packages of the robot and of CLUE_EXTRAS, and an editable
# install of clue_ros. Then `clue` and the nodes are on PATH, edits need no rebuild, and the links of
# clue_write_overlay make `ros2 run` and `ros2 launch` find the same files. Remove the folder to undo
# it all.
#
# Every step leaves a stamp that names what it was made from; a later start compares and skips.
#
# CLUE_EXTRAS        extras of clue_ros/requirements.py to add ("voice lab"); those there already stay
# CLUE_PYTHON        the Python to use (default: the first of python3, python3.10 .. 3.13 that fits)
# CLUE_VENV          where to make the environment (default: .venv in the repository)
# CLUE_TORCH_INDEX   package index to take torch from: the address of PyTorch's CPU (or CUDA) wheels
#                    as pytorch.org names it. Without it, and on a machine without an NVIDIA GPU,
#                    a CPU build is looked for first; the default build brings gigabytes of CUDA.

CLUE_ROOT="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
export CLUE_ROOT
source "$CLUE_ROOT/scripts/setup.sh"

# Puts a folder in front of a list variable, unless it is there already.
clue_prepend() { # VARIABLE FOLDER
    case ":${!1:-}:" in
        *":$2:"*) ;;
        *) export "$1=$2${!1:+:${!1}}" ;;
    esac
}

clue_enter() {
    local venv="$CLUE_VENV_DIR"
    export VIRTUAL_ENV="$venv"
    unset PYTHONHOME
    clue_prepend PATH "$venv/bin"
    clue_prepend AMENT_PREFIX_PATH "$venv"
    clue_prepend AMENT_PREFIX_PATH "$venv/ros/install"
    clue_prepend LD_LIBRARY_PATH "$venv/ros/install/lib"
    clue_prepend PYTHONPATH "$(<"$venv/ros/python_path")"
    clue_prepend PYTHONPATH "$CLUE_ROOT" # benchmarks, demo and scripts import each other
    # only Fast DDS comes as a wheel
    [[ "$CLUE_ROS" == wheels ]] && export RMW_IMPLEMENTATION=rmw_fastrtps_cpp
    # without it most camera images are lost between processes, see the file
    local profiles=FASTDDS_DEFAULT_PROFILES_FILE
    case "${ROS_DISTRO:-}" in # Fast DDS 2 knows the old name, Fast DDS 3 warns about it
        humble | iron | jazzy) profiles=FASTRTPS_DEFAULT_PROFILES_FILE ;;
    esac
    export "$profiles=${!profiles:-$CLUE_ROOT/config/fastdds.xml}"
    # the simulator of the extra lab renders without a display
    export MUJOCO_GL="${MUJOCO_GL:-egl}"
}

# Keeps a graph on this machine; the demo and the tests do, scripts/run does not.
clue_stay_local() {
    if [[ "${ROS_DISTRO:-}" == humble ]]; then
        export ROS_LOCALHOST_ONLY="${ROS_LOCALHOST_ONLY:-1}"
    else
        export ROS_AUTOMATIC_DISCOVERY_RANGE="${ROS_AUTOMATIC_DISCOVERY_RANGE:-LOCALHOST}"
    fi
}

clue_setup && clue_enter
