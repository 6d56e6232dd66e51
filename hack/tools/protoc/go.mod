// protoc of `make generate`, and the goimports that go-to-protobuf runs.
module github.com/annex-dev/annex/hack/tools/protoc

go 1.26.0

tool golang.org/x/tools/cmd/goimports

require (
	github.com/bufbuild/protocompile v0.14.1
	github.com/gogo/protobuf v1.3.2
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af
)

require (
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/telemetry v0.0.0-20260924152758-ed294f943157 // indirect
	golang.org/x/tools v0.51.0 // indirect
)
