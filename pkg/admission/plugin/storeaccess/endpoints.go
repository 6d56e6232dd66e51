// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package storeaccess

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/admission"
)

const unixScheme = "unix://"

// anyPort stands for every port in a pattern.
const anyPort = "*"

// Endpoints are patterns of endpoints that every caller may set in a Store. Names are not
// resolved: DNS could point them anywhere.
type Endpoints []pattern

var _ admission.PluginInitializer = Endpoints{}

// pattern matches a socket, or hosts and a port.
type pattern struct {
	socket string
	host   string
	prefix netip.Prefix
	port   string
}

// ParseEndpoints parses patterns: HOST:PORT, where HOST is a DNS name, *.DOMAIN, an IP
// address or a range of those, and PORT may be *; or unix:///PATH.
func ParseEndpoints(given []string) (Endpoints, error) {
	var parsed Endpoints
	for _, text := range given {
		p, err := parsePattern(text)
		if err != nil {
			return nil, fmt.Errorf("%q %w", text, err)
		}
		parsed = append(parsed, p)
	}
	return parsed, nil
}

func parsePattern(text string) (pattern, error) {
	if socket, ok := strings.CutPrefix(text, unixScheme); ok {
		if !path.IsAbs(socket) || path.Clean(socket) != socket {
			return pattern{}, fmt.Errorf("must have the absolute path of a socket, without empty, `.` or `..` segments")
		}
		return pattern{socket: text}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return pattern{}, fmt.Errorf("must be HOST:PORT or unix:///PATH: %w", err)
	}
	if number, err := strconv.ParseUint(port, 10, 16); port != anyPort && (err != nil || number == 0) {
		return pattern{}, fmt.Errorf("must have a port between 1 and 65535, or %s for all", anyPort)
	}
	if prefix, err := netip.ParsePrefix(host); err == nil {
		return pattern{prefix: prefix.Masked(), port: port}, nil
	}
	if address, err := netip.ParseAddr(host); err == nil && address.Zone() == "" {
		return pattern{prefix: netip.PrefixFrom(address, address.BitLen()), port: port}, nil
	}
	if len(validation.IsDNS1123Subdomain(strings.TrimPrefix(host, "*."))) > 0 {
		return pattern{}, fmt.Errorf("must have a DNS name in lower case, *.DOMAIN, an IP address or a range of those as host")
	}
	return pattern{host: host, port: port}, nil
}

// Contain reports whether a valid endpoint of a Store matches one of the patterns.
func (e Endpoints) Contain(endpoint string) bool {
	parsed, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	for _, p := range e {
		if p.socket == endpoint || p.socket == "" && (p.port == anyPort || p.port == parsed.Port()) && p.matchesHost(parsed.Hostname()) {
			return true
		}
	}
	return false
}

func (p pattern) matchesHost(host string) bool {
	if p.prefix.IsValid() {
		address, err := netip.ParseAddr(host)
		return err == nil && (p.prefix.Contains(address) || p.prefix.Contains(address.Unmap()))
	}
	if domain, ok := strings.CutPrefix(p.host, "*"); ok {
		return len(host) > len(domain) && strings.HasSuffix(host, domain)
	}
	return host == p.host
}

// Initialize implements admission.PluginInitializer.
func (e Endpoints) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(*Plugin); ok {
		p.allowed = e
	}
}
