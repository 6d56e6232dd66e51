// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"
	netutils "k8s.io/utils/net"

	"github.com/annex-dev/annex/pkg/pki"
)

// Serving says where annex listens and with which certificate.
type Serving struct {
	*genericoptions.SecureServingOptionsWithLoopback
}

// NewServing returns the defaults: loopback only, port 7443, a certificate of
// annex's own authority.
func NewServing() *Serving {
	upstream := genericoptions.NewSecureServingOptions()
	upstream.BindAddress = netutils.ParseIPSloppy("127.0.0.1")
	upstream.BindPort = 7443
	upstream.Required = true
	upstream.ServerCert = genericoptions.GeneratableKeyCert{}
	return &Serving{upstream.WithLoopback()}
}

// AddFlags adds upstream's serving flags.
func (o *Serving) AddFlags(fs *pflag.FlagSet) {
	o.SecureServingOptionsWithLoopback.AddFlags(fs)
	fs.Lookup("bind-address").Usage = "The IP address on which to listen for the --secure-port port. " +
		"The unspecified address (0.0.0.0 or ::) means all interfaces."
	fs.Lookup("secure-port").Usage = "The port on which to serve HTTPS with authentication and authorization. 0 picks a free port."
	fs.Lookup("tls-cert-file").Usage = "File containing the x509 certificate for HTTPS, intermediates after it. " +
		"It is read again when it changes. If not set, annex makes one of its own in --data-dir and renews it."
	// Certificates that annex makes live in --data-dir.
	hide(fs, "cert-dir")
}

// Validate checks the flags and the certificate they name.
func (o *Serving) Validate() []error {
	var errs []error
	// Upstream's check says that 0 turns serving off; to annex it is any free port.
	if o.BindPort < 0 || o.BindPort > 65535 {
		errs = append(errs, fmt.Errorf("--secure-port %d must be between 0 and 65535", o.BindPort))
	}
	if o.ServerCert.CertDirectory != "" {
		errs = append(errs, fmt.Errorf("--cert-dir is not supported: annex keeps its certificates in --data-dir"))
	}
	cert, key := o.ServerCert.CertKey.CertFile, o.ServerCert.CertKey.KeyFile
	switch {
	case cert == "" && key == "":
	case cert == "" || key == "":
		errs = append(errs, fmt.Errorf("--tls-cert-file and --tls-private-key-file must be set together"))
	default:
		if err := pki.CheckServingPair(cert, key, time.Now()); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// OwnCertificate reports whether annex serves with a certificate it makes itself.
func (o *Serving) OwnCertificate() bool { return o.ServerCert.CertKey.CertFile == "" }

// UseOwnCertificate serves with the certificate that annex made: to everybody,
// or, where serverName is not empty, to who asks for that name.
func (o *Serving) UseOwnCertificate(certFile, keyFile, serverName string) {
	if serverName == "" {
		o.ServerCert.CertKey.CertFile, o.ServerCert.CertKey.KeyFile = certFile, keyFile
		return
	}
	own := cliflag.NamedCertKey{Names: []string{serverName}, CertFile: certFile, KeyFile: keyFile}
	o.SNICertKeys = append(o.SNICertKeys, own)
}

// UseCertificate serves to everybody with a certificate that is not in files.
func (o *Serving) UseCertificate(cert dynamiccertificates.CertKeyContentProvider) {
	o.ServerCert.CertKey = genericoptions.CertKey{}
	o.ServerCert.GeneratedCert = cert
}

// Listen opens the port, so that one that is taken is reported before anything
// else is started, and so that the port that 0 stands for is known. Sharing
// flags are left to upstream, which sets the socket options.
func (o *Serving) Listen(ctx context.Context) error {
	if o.Listener != nil || o.PermitPortSharing || o.PermitAddressSharing {
		return nil
	}
	address := net.JoinHostPort(o.BindAddress.String(), strconv.Itoa(o.BindPort))
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--bind-address, --secure-port: %w", err)
	}
	o.Listener = listener
	o.BindPort = listener.Addr().(*net.TCPAddr).Port
	return nil
}

// Close closes the port that Listen opened, unless the server did.
func (o *Serving) Close() {
	if o.Listener != nil {
		_ = o.Listener.Close()
	}
}

// URL returns the address to reach annex at from this machine.
func (o *Serving) URL() string {
	host := o.BindAddress.String()
	if o.BindAddress.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(o.BindPort))
}
