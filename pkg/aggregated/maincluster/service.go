// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
)

// Service is the Service in the main cluster through which it reaches annex.
type Service struct {
	Namespace, Name string
	Port            int32
}

// DefaultService is the one that the manifests make.
func DefaultService() Service { return Service{Namespace: "annex-system", Name: "annex", Port: 443} }

// String is the form that a flag takes: NAMESPACE/NAME:PORT.
func (s *Service) String() string { return fmt.Sprintf("%s/%s:%d", s.Namespace, s.Name, s.Port) }

// Type is shown in --help.
func (s *Service) Type() string { return "NAMESPACE/NAME:PORT" }

// Set parses what String returns. Without a port it is 443.
func (s *Service) Set(value string) error {
	path, port, hasPort := strings.Cut(value, ":")
	parsed := Service{Port: 443}
	var ok bool
	if parsed.Namespace, parsed.Name, ok = strings.Cut(path, "/"); !ok {
		return errors.New("it must have the form NAMESPACE/NAME:PORT")
	}
	if hasPort {
		number, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return fmt.Errorf("the port must be a number: %w", err)
		}
		parsed.Port = int32(number)
	}
	if reasons := utilvalidation.IsDNS1123Label(parsed.Namespace); len(reasons) > 0 {
		return fmt.Errorf("namespace %q: %s", parsed.Namespace, strings.Join(reasons, ", "))
	}
	if reasons := utilvalidation.IsDNS1035Label(parsed.Name); len(reasons) > 0 {
		return fmt.Errorf("name %q: %s", parsed.Name, strings.Join(reasons, ", "))
	}
	if reasons := utilvalidation.IsValidPortNum(int(parsed.Port)); len(reasons) > 0 {
		return fmt.Errorf("port %d: %s", parsed.Port, strings.Join(reasons, ", "))
	}
	*s = parsed
	return nil
}

// Lease is the name of the Lease, in the namespace of the Service, that the replica
// with the controllers holds. Two annexes in one namespace have two.
func (s *Service) Lease() string { return s.Name + "-controllers" }

// ServerName is the server name that the main cluster verifies behind the Service.
func (s *Service) ServerName() string { return s.Name + "." + s.Namespace + ".svc" }
