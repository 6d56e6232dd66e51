#!/usr/bin/env bash

# Copyright The annex Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs annex as artifacts/image/Containerfile and artifacts/deploy make it run,
# without a container engine: the static binary alone in a read-only root, as
# user 65532 without capabilities, and nothing writable but a volume with the
# owner and mode that fsGroup gives one. Needs root and unshare(1) for the mounts,
# which nobody else sees and which are gone when it ends.

set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ "$(id -u)" != 0 ]]; then
    echo "verify-image: skipped: needs root for chroot and mounts" >&2
    exit 0
fi

scratch="$(mktemp -d)"
trap 'rm -rf "${scratch}"' EXIT
chmod 755 "${scratch}"
root="${scratch}/root"
mkdir -p "${root}/var/lib/annex" "${root}/proc"

echo "verify-image: building the static binary"
CGO_ENABLED=0 go build -ldflags '-s -w' -o "${root}/annex" .

cat > "${scratch}/run" <<'EOF'
set -o errexit -o nounset
root="$1"
mount --bind "${root}" "${root}"
mount -t tmpfs -o size=512m,mode=2775,gid=65532 volume "${root}/var/lib/annex"
mount --rbind /proc "${root}/proc"
mount -o remount,bind,ro "${root}"
exec chroot --userspec=65532:65532 --groups=65532 "${root}" \
    /annex serve --data-dir=/var/lib/annex/data --secure-port=0
EOF

unshare --mount sh "${scratch}/run" "${root}" > "${scratch}/out" 2> "${scratch}/err" &
annex=$!
for _ in $(seq 300); do
    if grep -q 'is ready at' "${scratch}/out" || ! kill -0 "${annex}" 2> /dev/null; then
        break
    fi
    sleep 0.1
done
if ! grep 'is ready at' "${scratch}/out"; then
    echo "verify-image: annex did not get ready:" >&2
    cat "${scratch}/err" >&2
    exit 1
fi
# Exec all along: this is annex itself, and it must end well.
kill -TERM "${annex}"
if ! wait "${annex}"; then
    echo "verify-image: annex did not stop cleanly:" >&2
    cat "${scratch}/err" >&2
    exit 1
fi
echo "verify-image: it ran and stopped in an empty, read-only root as user 65532"
