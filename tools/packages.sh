# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of this folder: installs what a section of tools/packages names and is not there.
# shellcheck shell=sh

# Prints the packages of the given sections, one a line. The caller is in the source root.
packages_of() {
    for section; do
        sed -n "/^\[$section\]\$/,/^\[/{/^[a-z0-9]/p}" tools/packages
    done
}

# Prints those of them that are not installed.
packages_missing() {
    packages_of "$@" | while read -r package; do
        case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) in
        installed) ;;
        *) echo "$package" ;;
        esac
    done
}

# Installs the sections given. Sets packages_changed to yes or no. Ends the script with 4 where it cannot.
# LOCKSTEP_NO_INSTALL=1 goes on with what there is.
packages_install() {
    packages_changed=no
    [ "${LOCKSTEP_NO_INSTALL:-}" = 1 ] && return
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        echo "This script installs packages on Debian 12 only. Lockstep needs what Debian calls:" >&2
        packages_of "$@" | sed 's/^/    /' >&2
        echo "Install the equivalents, then run this again with LOCKSTEP_NO_INSTALL=1." >&2
        exit 4
    fi
    missing=$(packages_missing "$@" | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif command -v sudo >/dev/null; then
        as_root=sudo
    else
        echo "Packages are missing, and there is neither root nor sudo to install them. As root:" >&2
        echo "    apt-get install --no-install-recommends $missing" >&2
        exit 4
    fi
    echo "Installing $missing"
    packages_log=$(mktemp)
    # Lists that cannot be renewed (no network) are no reason to stop: the old ones may do.
    # shellcheck disable=SC2086  # one word a package
    if ! {
        $as_root apt-get -q update
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 \
            install --no-install-recommends $missing
    } >"$packages_log" 2>&1; then
        tail -n 20 "$packages_log" >&2
        rm -f "$packages_log"
        echo "apt-get could not install: $missing" >&2
        exit 4
    fi
    rm -f "$packages_log"
    packages_changed=yes
}

# Ends the script with 4 where one of these commands is not there: $1 are the sections, separated by blanks, that have
# them.
packages_need() {
    sections=$1
    shift
    for command; do
        if ! command -v "$command" >/dev/null; then
            why=
            [ "${LOCKSTEP_NO_INSTALL:-}" != 1 ] || why=", and LOCKSTEP_NO_INSTALL=1 installs nothing"
            echo "There is no $command$why. On Debian, as root:" >&2
            # shellcheck disable=SC2086  # one word a section
            echo "    apt-get install --no-install-recommends $(packages_of $sections | sort -u | tr '\n' ' ')" >&2
            exit 4
        fi
    done
}

# Likewise a section that nothing depends on; $2 says what goes without it. Goes on where it cannot install. Keeps
# packages_changed, unless it installed something.
packages_install_optional() {
    changed_before=${packages_changed:-no}
    missing_before=$(packages_missing "$1")
    (packages_install "$1") || echo "$2"
    packages_changed=$changed_before
    [ "$missing_before" = "$(packages_missing "$1")" ] || packages_changed=yes
}

# Makes the meson build folder $1 with the options that follow, unless it is there. After an installation it is
# made anew, as meson remembers what it once did not find.
build_folder() {
    folder=$1
    shift
    if [ ! -f "$folder/build.ninja" ]; then
        meson setup "$folder" "$@"
    elif [ "$packages_changed" = yes ]; then
        meson setup --wipe "$folder" "$@"
    fi
}
