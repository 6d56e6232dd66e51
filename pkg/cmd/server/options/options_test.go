// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	apiextensionsfeatures "k8s.io/apiextensions-apiserver/pkg/features"
	"k8s.io/apimachinery/pkg/util/sets"
	genericfeatures "k8s.io/apiserver/pkg/features"
	"k8s.io/component-base/featuregate"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/version"
)

// parse parses, completes and validates flags. It is not safe for parallel use: upstream's
// registry of feature gates is global.
func parse(t *testing.T, args ...string) (CompletedOptions, error) {
	t.Helper()
	o := New()
	registerVersion() // resets the gates and versions of other tests
	set := pflag.NewFlagSet(t.Name(), pflag.ContinueOnError)
	named := o.Flags()
	for _, group := range named.FlagSets {
		set.AddFlagSet(group)
	}
	if err := set.Parse(args); err != nil {
		return CompletedOptions{}, err
	}
	completed, err := o.Complete()
	if err != nil {
		return CompletedOptions{}, err
	}
	return completed, completed.Validate()
}

func TestDefaults(t *testing.T) {
	o, err := parse(t)
	expect.NoError(t, err, "the defaults are refused")
	if !o.Etcd.Embedded() {
		t.Error("the default is not the embedded etcd")
	}
	if !filepath.IsAbs(o.Data.Dir) || filepath.Base(o.Data.Dir) != ".annex" {
		t.Errorf("--data-dir is %q, want an absolute path to .annex", o.Data.Dir)
	}
	if got := o.Serving.URL(); got != "https://127.0.0.1:7443" {
		t.Errorf("serves at %s by default", got)
	}
	if !o.Generic.AdvertiseAddress.Equal(net.ParseIP("127.0.0.1")) {
		t.Errorf("advertises %s, want the bind address", o.Generic.AdvertiseAddress)
	}
	if !o.Features.EnablePriorityAndFairness {
		t.Error("priority and fairness is off by default")
	}
	if o.Etcd.StorageConfig.Prefix != "/annex" {
		t.Errorf("--etcd-prefix is %q", o.Etcd.StorageConfig.Prefix)
	}
}

// Upstream accepts these, but Stores do not.
func TestEtcdIsCompleted(t *testing.T) {
	for given, want := range map[string]string{"abc": "/abc", "abc/": "/abc", "/a//b/../c/": "/a/c", "/annex": "/annex"} {
		o, err := parse(t, "--etcd-prefix="+given, "--etcd-servers=http://127.0.0.1:2379/")
		if err != nil {
			t.Errorf("--etcd-prefix=%s is refused: %v", given, err)
			continue
		}
		if got := o.Etcd.StorageConfig.Prefix; got != want {
			t.Errorf("--etcd-prefix=%s is %q, want %q", given, got, want)
		}
		if got := o.Etcd.StorageConfig.Transport.ServerList[0]; got != "http://127.0.0.1:2379" {
			t.Errorf("the server is %q", got)
		}
	}
}

// TestEmulatedVersion detects a build with a wrong Kubernetes version, which would disable
// features.
func TestEmulatedVersion(t *testing.T) {
	o, err := parse(t)
	expect.NoError(t, err)
	effective := o.Generic.ComponentGlobalsRegistry.EffectiveVersionFor(o.Generic.ComponentName)
	if err := version.AssertEmulated(effective); err != nil {
		t.Error(err)
	}
	if got := effective.Info().GitVersion; got != version.Full() {
		t.Errorf("/version is %q, want %q", got, version.Full())
	}
	gates := o.Generic.ComponentGlobalsRegistry.FeatureGateFor(o.Generic.ComponentName)
	for _, feature := range []featuregate.Feature{genericfeatures.WatchList, apiextensionsfeatures.CRDValidationRatcheting} {
		if !gates.Enabled(feature) {
			t.Errorf("feature %s is off", feature)
		}
	}
}

func TestRefusedFlags(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string // names the flag
	}{
		"unknown flag":               {[]string{"--no-such-flag"}, "--no-such-flag"},
		"empty data dir":             {[]string{"--data-dir="}, "--data-dir"},
		"port out of range":          {[]string{"--secure-port=70000"}, "--secure-port"},
		"certificate without key":    {[]string{"--tls-cert-file=/tls.crt"}, "--tls-private-key-file"},
		"certificate not found":      {[]string{"--tls-cert-file=/no/tls.crt", "--tls-private-key-file=/no/tls.key"}, "--tls-cert-file"},
		"cert dir":                   {[]string{"--cert-dir=/certs"}, "--cert-dir"},
		"etcd overrides":             {[]string{"--etcd-servers-overrides=/events#http://127.0.0.1:2379"}, "--etcd-servers-overrides"},
		"cache budget":               {[]string{"--cache-memory-budget=much"}, "--cache-memory-budget"},
		"negative cache budget":      {[]string{"--cache-memory-budget=-1"}, "--cache-memory-budget"},
		"no garbage collector":       {[]string{"--enable-garbage-collector=false", "--main-kubeconfig=/k"}, "--enable-garbage-collector is for a standalone annex"},
		"static URL without TLS":     {[]string{"--static-url=http://example.com/a"}, "--static-url: the URL must begin with https://"},
		"static URL with a password": {[]string{"--static-url=https://me:secret@example.com"}, "--static-url: the URL must not contain a password"},
		"static header without URL":  {[]string{"--static-url-header-file=/h"}, "--static-url-header-file, --static-url-ca-file: --static-url must be set"},
		"static interval":            {[]string{"--static-check-interval=1ms"}, "--static-check-interval must be at least 1s"},
		"etcd prefix /":              {[]string{"--etcd-prefix=/"}, "--etcd-prefix: Invalid value: \"/\": must have at least one segment"},
		"etcd prefix with ..":        {[]string{"--etcd-prefix=a/.."}, "--etcd-prefix"},
		"empty etcd prefix":          {[]string{"--etcd-prefix="}, "--etcd-prefix"},
		"etcd server without port":   {[]string{"--etcd-servers=http://etcd"}, "--etcd-servers: Invalid value: \"http://etcd\": must have a host and a port"},
		"etcd server of unixs":       {[]string{"--etcd-servers=unixs:///run/etcd.sock"}, "--etcd-servers: Unsupported value: \"unixs\""},
		"negative quota":             {[]string{"--quota-backend-bytes=-1"}, "--quota-backend-bytes"},
		"quota of a foreign etcd":    {[]string{"--quota-backend-bytes=1", "--etcd-servers=http://127.0.0.1:1"}, "--quota-backend-bytes"},
		"unknown media type":         {[]string{"--storage-media-type=text/plain"}, "--storage-media-type"},
		"Store endpoint as a URL":    {[]string{"--store-endpoints=etcd:2379,https://etcd:2379"}, "--store-endpoints: \"https://etcd:2379\""},
		"unknown plugin":             {[]string{"--enable-admission-plugins=NoSuchPlugin"}, "NoSuchPlugin"},
		"plugin both on and off":     {[]string{"--enable-admission-plugins=LocalAPIService", "--disable-admission-plugins=LocalAPIService"}, "LocalAPIService"},
		"debug socket":               {[]string{"--debug-socket-path=/tmp/socket"}, "--debug-socket-path"},
		"no event ttl":               {[]string{"--event-ttl=0"}, "--event-ttl"},
		"unknown group":              {[]string{"--runtime-config=example.com/v1=true"}, "example.com"},
		"emulated version too new":   {[]string{"--emulated-version=1.99"}, "1.99"},
		"emulated version too old":   {[]string{"--emulated-version=1.20"}, "1.20"},
		"unknown audit format":       {[]string{"--audit-log-path=/log", "--audit-log-format=never"}, "audit log format"},
		"log without a policy":       {[]string{"--audit-log-path=/log"}, "--audit-policy-file"},
		"policy without a log":       {[]string{"--audit-policy-file=/policy"}, "--audit-log-path"},
		"two main clusters":          {[]string{"--main-kubeconfig=/k", "--main-in-cluster"}, "--main-in-cluster"},
		"CA of no certificate":       {[]string{"--main-kubeconfig=/k", "--publish-ca-file=/ca"}, "--publish-ca-file"},
		"CA without certificate":     {[]string{"--publish-ca-file=/ca"}, "--publish-ca-file"},
		"service without a name":     {[]string{"--publish-service=annex-system"}, "--publish-service"},
		"no reviews":                 {[]string{"--authorization-webhook-qps=0"}, "--authorization-webhook-qps"},
		"issuer not a URL":           {[]string{"--service-account-issuer=annex"}, "--service-account-issuer"},
		"issuer twice":               {[]string{"--service-account-issuer=https://a", "--service-account-issuer=https://a"}, "--service-account-issuer"},
		"empty issuer":               {[]string{"--service-account-issuer="}, "--service-account-issuer"},
		"keys over http":             {[]string{"--service-account-jwks-uri=http://a/jwks"}, "--service-account-jwks-uri"},
		"token lifetime too short":   {[]string{"--service-account-max-token-expiration=59m"}, "--service-account-max-token-expiration"},
		"token lifetime too long":    {[]string{"--service-account-max-token-expiration=2000000h"}, "--service-account-max-token-expiration"},
		"empty audience":             {[]string{"--api-audiences=a,"}, "--api-audiences"},
		"issuer, aggregated":         {[]string{"--main-kubeconfig=/k", "--service-account-issuer=https://a"}, "--service-account-issuer is for a standalone annex"},
		"audiences, aggregated":      {[]string{"--main-kubeconfig=/k", "--api-audiences=a"}, "--api-audiences is for a standalone annex"},
		"bootstrap, aggregated":      {[]string{"--main-kubeconfig=/k", "--enable-bootstrap-token-auth"}, "--enable-bootstrap-token-auth is for a standalone annex"},
		"negative cache":             {[]string{"--authorization-webhook-cache-unauthorized-ttl=-1s"}, "--authorization-webhook-cache-unauthorized-ttl"},
		"JWTs of the main cluster":   {[]string{"--main-kubeconfig=/k", "--authentication-config=/a"}, "--authentication-config is for a standalone annex"},
		"webhook and main cluster":   {[]string{"--main-kubeconfig=/k", "--authentication-token-webhook-config-file=/a"}, "--authentication-token-webhook-config-file is for a standalone annex"},
		"proxy of the main cluster":  {[]string{"--main-kubeconfig=/k", "--requestheader-client-ca-file=/a"}, "--requestheader-client-ca-file is for a standalone annex"},
		"unknown webhook version":    {[]string{"--authentication-token-webhook-version=v2"}, "--authentication-token-webhook-version"},
		"names without a proxy":      {[]string{"--requestheader-allowed-names=a"}, "--requestheader-client-ca-file"},
		"proxy with empty headers":   {[]string{"--requestheader-client-ca-file=/a", "--requestheader-group-headers= "}, "requestheader-group-headers"},
		"proxy without a gate":       {[]string{"--requestheader-client-ca-file=/a", "--feature-gates=RemoteRequestHeaderUID=false"}, "--requestheader-uid-headers"},
		"proxy without headers":      {[]string{"--requestheader-client-ca-file=/a", "--requestheader-username-headers="}, "--requestheader-username-headers"},
		"tracing file not found":     {[]string{"--tracing-config-file=/no/tracing.yaml"}, "tracing"},
		"negative connection age":    {[]string{"--max-connection-age=-1s"}, "--max-connection-age"},
		"too many streams":           {[]string{"--http2-max-streams-per-connection=9000"}, "--http2-max-streams-per-connection 9000"},
		"Retry-After at shutdown":    {[]string{"--shutdown-send-retry-after"}, "--shutdown-delay-duration"},
		"lease shorter than renewal": {[]string{"--leader-elect-lease-duration=5s"}, "renew deadline"},
		"unknown mode":               {[]string{"--authorization-mode=RBAC,Node"}, `--authorization-mode: there is no mode "Node"`},
		"mode twice":                 {[]string{"--authorization-mode=RBAC,RBAC"}, "--authorization-mode: the mode RBAC is named twice"},
		"no mode":                    {[]string{"--authorization-mode="}, "--authorization-mode: there is no authorizer"},
		"webhook without a file":     {[]string{"--authorization-mode=Webhook"}, "--authorization-webhook-config-file"},
		"webhook without a mode":     {[]string{"--authorization-webhook-config-file=/k"}, "--authorization-webhook-config-file needs --authorization-mode=Webhook"},
		"unknown review version":     {[]string{"--authorization-mode=Webhook", "--authorization-webhook-config-file=/k", "--authorization-webhook-version=v2"}, "--authorization-webhook-version"},
		"modes and a file":           {[]string{"--authorization-config=/c", "--authorization-mode=RBAC"}, "--authorization-mode cannot be combined with --authorization-config"},
		"webhook and a file":         {[]string{"--authorization-config=/c", "--authorization-webhook-cache-authorized-ttl=1s"}, "--authorization-webhook-cache-authorized-ttl cannot be combined with --authorization-config"},
		"modes, aggregated":          {[]string{"--main-kubeconfig=/k", "--authorization-mode=RBAC"}, "--authorization-mode is for a standalone annex: the main cluster authorizes callers"},
		"file, aggregated":           {[]string{"--main-kubeconfig=/k", "--authorization-config=/c"}, "--authorization-config is for a standalone annex"},
		"webhook, aggregated":        {[]string{"--main-kubeconfig=/k", "--authorization-webhook-config-file=/c"}, "--authorization-webhook-config-file is for a standalone annex"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse(t, tc.args...)
			if err == nil {
				t.Fatalf("%v is accepted", tc.args)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q does not name %q", err, tc.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error is more than one line: %q", err)
			}
		})
	}
	// Reset the global registry for other tests.
	_, err := parse(t)
	expect.NoError(t, err, "defaults after refused flags")
}

func TestAcceptedAuthorization(t *testing.T) {
	for _, accepted := range [][]string{
		{"--authorization-mode=Webhook,RBAC", "--authorization-webhook-config-file=/k"},
		{"--authorization-config=/c"},
		{"--main-kubeconfig=/k", "--authorization-webhook-cache-authorized-ttl=1s"},
	} {
		if _, err := parse(t, accepted...); err != nil {
			t.Errorf("%v: %v", accepted, err)
		}
	}
}

func TestBehindMain(t *testing.T) {
	o, err := parse(t, "--main-kubeconfig=/k", "--publish-service=a/b:8443")
	expect.NoError(t, err)
	if !o.Main.Enabled() || !o.Etcd.EnableGarbageCollection {
		t.Error("what the main cluster makes possible is off: garbage collection")
	}
	if want := (maincluster.Service{Namespace: "a", Name: "b", Port: 8443}); o.Main.PublishService != want {
		t.Errorf("publishes %v, want %v", o.Main.PublishService, want)
	}
}

func TestFlagsAreGrouped(t *testing.T) {
	named := New().Flags()
	want := []string{"API enablement", "admission", "annex", "auditing", "authentication", "authorization", "etcd", "features", "generic", "high availability", "logs", "main cluster", "secure serving", "static objects", "traces"}
	if diff := cmp.Diff(want, sets.List(sets.KeySet(named.FlagSets))); diff != "" {
		t.Errorf("groups of --help (-want +got):\n%s", diff)
	}
	for group, set := range named.FlagSets {
		set.VisitAll(func(flag *pflag.Flag) {
			if flag.Usage == "" {
				t.Errorf("--%s in %q has no help", flag.Name, group)
			}
		})
	}
}

func TestListen(t *testing.T) {
	o := NewServing()
	o.BindPort = 0
	expect.NoError(t, o.Listen(t.Context()))
	t.Cleanup(o.Close)
	if o.BindPort == 0 {
		t.Error("the port that 0 stands for is not known")
	}
	second := NewServing()
	second.BindPort = o.BindPort
	err := second.Listen(t.Context())
	if err == nil {
		second.Close()
		t.Fatal("two servers listen on one port")
	}
	if !strings.Contains(err.Error(), "--secure-port") {
		t.Errorf("error %q does not name the flag", err)
	}
}
