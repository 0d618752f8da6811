#!/usr/bin/env bash
# The container image of every role. IMAGE is its name (weir:dev), ARCH the machine it is for (this one's), CA_BUNDLE the authorities it
# trusts (the system's). Prints the name last.
set -euo pipefail
cd "$(dirname "$0")/../.."
image=${IMAGE:-weir:dev}
arch=${ARCH:-$(go env GOARCH)}
bundle=${CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}

case $image in
  *:latest) echo "IMAGE=$image: latest may be anything: give it a tag, such as weir:dev" >&2; exit 2 ;;
  *:* | *@*) ;;
  *) echo "IMAGE=$image: give it a tag, such as weir:dev" >&2; exit 2 ;;
esac
if ! command -v docker >/dev/null; then
  echo "docker is not on the PATH: install an engine, or build elsewhere and load the image with docker load" >&2
  exit 2
fi
if [ ! -r "$bundle" ]; then
  echo "$bundle is not there: install ca-certificates, or name a bundle with CA_BUNDLE" >&2
  exit 2
fi

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
# Static, since there is no C library to load; -trimpath comes from the Makefile, and here for those who come without it.
CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -ldflags '-s -w' -o "$context/weir" .
cp -L "$bundle" "$context/ca-certificates.crt"
chmod 0755 "$context/weir"
chmod 0644 "$context/ca-certificates.crt"
# A builder of before BuildKit knows no --platform without being told to.
platform=()
[ "$arch" = "$(go env GOHOSTARCH)" ] || platform=(--platform "linux/$arch")
docker build "${platform[@]}" --tag "$image" --file hack/image/Dockerfile "$context" >&2
echo "$image"
