# syntax=docker/dockerfile:1
# A static binary in an empty image. Build: docker build -t gpustack/model-deployment-operator:0.1.0 .

# Alpine's own target is musl, so the ordinary build is static; cmake, make and a C compiler are for aws-lc.
FROM rust:1.95-alpine AS build
RUN apk add --no-cache build-base ca-certificates cmake
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package model-deployment-operator --bin model-deployment-operator \
    && mkdir -p /out/usr/bin /out/etc/ssl/certs /out/licenses \
    && install -m 0755 target/release/model-deployment-operator /out/usr/bin/ \
    # A binary that asks for shared libraries would not start in an empty image.
    && ! readelf -d /out/usr/bin/model-deployment-operator | grep -q NEEDED \
    && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ \
    && cp LICENSE NOTICE docs/licenses/* /out/licenses/

FROM scratch
COPY --from=build /out /
# A number, so that Kubernetes can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["/usr/bin/model-deployment-operator"]
CMD ["run"]
