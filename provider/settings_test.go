package provider

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// configOf makes a provider configuration; what is left out is null. A value with the key
// "endpoints" is a comma-separated list.
func configOf(values map[string]string) providerModel {
	str := func(name string) types.String {
		if v, ok := values[name]; ok {
			return types.StringValue(v)
		}
		return types.StringNull()
	}
	m := providerModel{
		Endpoint: str("endpoint"), Endpoints: types.ListNull(types.StringType), Username: str("username"), Password: str("password"),
		Token: str("token"), TokenFile: str("token_file"), CACertificate: str("ca_certificate"), CACertificateFile: str("ca_certificate_file"),
		ClientCertificate: str("client_certificate"), ClientCertificateFile: str("client_certificate_file"), ClientKey: str("client_key"),
		ClientKeyFile: str("client_key_file"), RequestIDPrefix: str("request_id_prefix"), RequestedBy: str("requested_by"),
		RetryBudget: durationValue{str("retry_budget")}, InsecureSkipVerify: types.BoolNull(),
	}
	if list, ok := values["endpoints"]; ok {
		var elems []attr.Value
		for e := range strings.SplitSeq(list, ",") {
			elems = append(elems, types.StringValue(e))
		}
		m.Endpoints = types.ListValueMust(types.StringType, elems)
	}
	if v, ok := values["insecure_skip_verify"]; ok {
		m.InsecureSkipVerify = types.BoolValue(v == "true")
	}
	return m
}

// authority is a certificate authority of a test, and what it has issued.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.make(&x509.Certificate{Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	return a
}

func (a *authority) make(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// issue makes a certificate for 127.0.0.1 and returns it and its key in PEM.
func (a *authority) issue(name string) (cert, key string) {
	a.t.Helper()
	c, k := a.make(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return pemText("CERTIFICATE", c.Raw), pemText("PRIVATE KEY", der)
}

func (a *authority) pem() string { return pemText("CERTIFICATE", a.cert.Raw) }

func pemText(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func TestResolve(t *testing.T) {
	ca := newAuthority(t)
	cert, key := ca.issue("client")
	full := map[string]string{envEndpoint: "http://env:1", envUsername: "eve", envPassword: "secret-e"}
	files := map[string]string{"ca.pem": ca.pem(), "cert.pem": cert, "key.pem": key, "token": " tok\n", "empty": "\n", "broken": "hidden t\n", "page": "<html>"}
	defaults := func(change func(*settings)) settings {
		s := settings{requestedBy: "terraform:default", endpoints: []string{"http://c"}}
		change(&s)
		return s
	}
	type config map[string]string
	for name, tt := range map[string]struct {
		config            config
		env               map[string]string
		want              settings
		argument, problem string
	}{
		"all from the environment":                  {config{}, full, defaults(func(s *settings) { s.endpoints = []string{"http://env:1"}; s.username, s.password = "eve", "secret-e" }), "", ""},
		"configuration wins":                        {config{"endpoint": "https://c", "username": "carl", "password": "secret-c"}, full, defaults(func(s *settings) { s.endpoints = []string{"https://c"}; s.username, s.password = "carl", "secret-c" }), "", ""},
		"a half from each":                          {config{"username": "carl"}, full, defaults(func(s *settings) { s.endpoints = []string{"http://env:1"}; s.username, s.password = "carl", "secret-e" }), "", ""},
		"a token beats the environment's user":      {config{"token": "tok"}, full, defaults(func(s *settings) { s.endpoints = []string{"http://env:1"}; s.token = "tok" }), "", ""},
		"a token file beats the environment's user": {config{"token_file": "token"}, full, defaults(func(s *settings) { s.endpoints = []string{"http://env:1"}; s.tokenFile = "token" }), "", ""},
		"a user beats the environment's token":      {config{"endpoint": "http://c", "username": "u", "password": "p"}, map[string]string{envToken: "tok", envTokenFile: "token"}, defaults(func(s *settings) { s.username, s.password = "u", "p" }), "", ""},
		"a token with a newline":                    {config{"endpoint": "http://c", "token": " tok\n"}, nil, defaults(func(s *settings) { s.token = "tok" }), "", ""},
		"a token file from the environment":         {config{"endpoint": "http://c"}, map[string]string{envTokenFile: "token"}, defaults(func(s *settings) { s.tokenFile = "token" }), "", ""},
		"nothing but an endpoint":                   {config{"endpoint": "http://c"}, nil, defaults(func(*settings) {}), "", ""},
		"several": {config{"endpoints": "http://a,http://b ,http://a"}, full, defaults(func(s *settings) {
			s.endpoints = []string{"http://a", "http://b"}
			s.username, s.password = "eve", "secret-e"
		}), "", ""},
		"several from the environment": {config{}, map[string]string{envEndpoints: "http://b, http://a,"}, defaults(func(s *settings) { s.endpoints = []string{"http://b", "http://a"} }), "", ""},
		"files": {
			config{"endpoint": "http://c", "ca_certificate_file": "ca.pem", "client_certificate_file": "cert.pem", "client_key_file": "key.pem"}, nil,
			defaults(func(s *settings) { s.caCertificate, s.clientCert, s.clientKey = ca.pem(), cert, key }), "", "",
		},
		"texts": {
			config{"endpoint": "http://c", "ca_certificate": ca.pem(), "client_certificate": cert, "client_key": key}, map[string]string{envCAFile: "page", envClientKeyFile: "page"},
			defaults(func(s *settings) { s.caCertificate, s.clientCert, s.clientKey = ca.pem(), cert, key }), "", "",
		},
		"certificates from the environment": {
			config{"endpoint": "http://c"}, map[string]string{envCA: ca.pem(), envClientCertFile: "cert.pem", envClientKey: key},
			defaults(func(s *settings) { s.caCertificate, s.clientCert, s.clientKey = ca.pem(), cert, key }), "", "",
		},
		"the rest": {
			config{"endpoint": "http://c", "insecure_skip_verify": "true", "request_id_prefix": "run-1:", "requested_by": "ci", "retry_budget": "2m"}, nil,
			defaults(func(s *settings) {
				s.insecureSkipVerify, s.requestIDPrefix, s.requestedBy, s.retryBudget = true, "run-1:", "ci", 2*time.Minute
			}), "", "",
		},
		"the rest from the environment": {
			config{"endpoint": "http://c"}, map[string]string{envInsecure: "1", envRequestID: "r-", envRequestedBy: "me", envRetryBudget: "30s"},
			defaults(func(s *settings) {
				s.insecureSkipVerify, s.requestIDPrefix, s.requestedBy, s.retryBudget = true, "r-", "me", 30*time.Second
			}), "", "",
		},
		"verified after all":                 {config{"endpoint": "http://c", "insecure_skip_verify": "false"}, map[string]string{envInsecure: "true"}, defaults(func(*settings) {}), "", ""},
		"no endpoint":                        {config{}, nil, settings{}, "endpoint", "missing"},
		"no scheme":                          {config{"endpoint": "coordinator:8080"}, nil, settings{}, "endpoint", `must begin with "https://"`},
		"an address without a scheme":        {config{"endpoint": "10.0.0.1:8080"}, nil, settings{}, "endpoint", `must begin with "https://"`},
		"a port that is none":                {config{"endpoint": "http://c:99999"}, nil, settings{}, "endpoint", "1 to 65535"},
		"one of several without a scheme":    {config{"endpoints": "http://a,b:1"}, nil, settings{}, "endpoints", `must begin with "https://"`},
		"one and several":                    {config{"endpoint": "http://a", "endpoints": "http://b"}, nil, settings{}, "endpoints", "conflicts"},
		"one and several in the environment": {config{}, map[string]string{envEndpoint: "http://a", envEndpoints: "http://b"}, settings{}, "endpoints", "both set"},
		"credentials in the URL":             {config{"endpoint": "http://u:hidden@c"}, nil, settings{}, "endpoint", "credentials"},
		"a query":                            {config{"endpoint": "http://c?x=1"}, nil, settings{}, "endpoint", "query"},
		"no host":                            {config{"endpoint": "http://"}, nil, settings{}, "endpoint", "host"},
		"a blank user name":                  {config{"endpoint": "http://c", "username": ""}, map[string]string{envToken: "tok"}, settings{}, "username", "blank"},
		"a blank password":                   {config{"endpoint": "http://c", "username": "u", "password": ""}, nil, settings{}, "password", "blank"},
		"both kinds":                         {config{"endpoint": "http://c", "username": "u", "password": "p", "token": "t"}, nil, settings{}, "token", "conflicts"},
		"token and file":                     {config{"endpoint": "http://c", "token_file": "token", "token": "t"}, nil, settings{}, "token_file", "conflicts"},
		"user and file":                      {config{"endpoint": "http://c", "token_file": "token", "username": "u"}, nil, settings{}, "token_file", "conflicts"},
		"both kinds in the environment":      {config{"endpoint": "http://c"}, map[string]string{envUsername: "u", envPassword: "p", envToken: "t"}, settings{}, "token", "conflicts"},
		"token and file in the environment":  {config{"endpoint": "http://c"}, map[string]string{envTokenFile: "token", envToken: "t"}, settings{}, "token_file", "conflicts"},
		"no password":                        {config{"endpoint": "http://c", "username": "u"}, nil, settings{}, "password", "missing"},
		"no user":                            {config{"endpoint": "http://c", "password": "p"}, nil, settings{}, "username", "missing"},
		"a colon":                            {config{"endpoint": "http://c", "username": "u:v", "password": "p"}, nil, settings{}, "username", "colon"},
		"a blank token":                      {config{"endpoint": "http://c", "token": " "}, nil, settings{}, "token", "blank"},
		"a broken token":                     {config{"endpoint": "http://c", "token": "hidden\r\nX: y"}, nil, settings{}, "token", "white space"},
		"no token file":                      {config{"endpoint": "http://c", "token_file": "nowhere"}, nil, settings{}, "token_file", "cannot be read"},
		"an empty token file":                {config{"endpoint": "http://c", "token_file": "empty"}, nil, settings{}, "token_file", "empty"},
		"a broken token file":                {config{"endpoint": "http://c", "token_file": "broken"}, nil, settings{}, "token_file", "white space"},
		"text and file":                      {config{"endpoint": "http://c", "ca_certificate": ca.pem(), "ca_certificate_file": "ca.pem"}, nil, settings{}, "ca_certificate", "conflicts"},
		"a path as text":                     {config{"endpoint": "http://c", "ca_certificate": "/etc/ca.pem"}, nil, settings{}, "ca_certificate", "ca_certificate_file"},
		"a page as file":                     {config{"endpoint": "http://c", "ca_certificate_file": "page"}, nil, settings{}, "ca_certificate_file", "holds no PEM block"},
		"a key as certificate":               {config{"endpoint": "http://c", "client_certificate": key}, nil, settings{}, "client_certificate", "BEGIN CERTIFICATE"},
		"a broken key":                       {config{"endpoint": "http://c", "client_certificate": cert, "client_key": pemText("PRIVATE KEY", []byte("hidden"))}, nil, settings{}, "client_key", "PKCS"},
		"an encrypted key":                   {config{"endpoint": "http://c", "client_certificate": cert, "client_key": pemText("ENCRYPTED PRIVATE KEY", []byte("hidden"))}, nil, settings{}, "client_key", "passphrase"},
		"no key":                             {config{"endpoint": "http://c", "client_certificate": cert}, nil, settings{}, "client_key", "missing"},
		"no certificate":                     {config{"endpoint": "http://c", "client_key": key}, nil, settings{}, "client_certificate", "missing"},
		"insecure, perhaps":                  {config{"endpoint": "http://c"}, map[string]string{envInsecure: "perhaps"}, settings{}, "insecure_skip_verify", "true or false"},
		"a prefix with spaces":               {config{"endpoint": "http://c", "request_id_prefix": "run 1"}, nil, settings{}, "request_id_prefix", "may only contain"},
		"a long prefix":                      {config{"endpoint": "http://c", "request_id_prefix": strings.Repeat("x", 65)}, nil, settings{}, "request_id_prefix", "65 bytes"},
		"a long requester":                   {config{"endpoint": "http://c", "requested_by": strings.Repeat("x", 1025)}, nil, settings{}, "requested_by", "1025 bytes"},
		"no patience":                        {config{"endpoint": "http://c"}, map[string]string{envRetryBudget: "0s"}, settings{}, "retry_budget", "between 1s and 1h"},
		"a prefix from the environment":      {config{"endpoint": "http://c"}, map[string]string{envRequestID: "run 1"}, settings{}, "request_id_prefix", "(set by environment variable " + envRequestID + ")"},
		"an endpoint from the environment":   {config{}, map[string]string{envEndpoint: "ftp://c"}, settings{}, "endpoint", "(set by environment variable " + envEndpoint + ")"},
		"a budget from the environment":      {config{"endpoint": "http://c"}, map[string]string{envRetryBudget: "2d"}, settings{}, "retry_budget", "(set by environment variable " + envRetryBudget + ")"},
		"a file from the environment":        {config{"endpoint": "http://c"}, map[string]string{envCAFile: "page"}, settings{}, "ca_certificate_file", "(set by environment variable " + envCAFile + ")"},
		"a token from the environment":       {config{"endpoint": "http://c"}, map[string]string{envToken: "a b"}, settings{}, "token", "(set by environment variable " + envToken + ")"},
		"a prefix that hides a bad variable": {config{"endpoint": "http://c", "request_id_prefix": "run 1"}, map[string]string{envRequestID: "r 2"}, settings{}, "request_id_prefix", "may only contain"},
	} {
		t.Run(name, func(t *testing.T) {
			got, refused := resolve(configOf(tt.config), surroundings{
				func(name string) string { return tt.env[name] },
				func(name string) ([]byte, error) {
					if text, ok := files[name]; ok {
						return []byte(text), nil
					}
					return nil, os.ErrNotExist
				},
			})
			if refused == nil {
				refused = &problem{}
			}
			if refused.argument != tt.argument || !strings.Contains(refused.text, tt.problem) || strings.Contains(refused.text, "hidden") {
				t.Errorf("argument %q, problem %q; want %q, %q", refused.argument, refused.text, tt.argument, tt.problem)
			}
			if tt.argument == "" && !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// What contradicts itself is found without the environment and without a file being read.
func TestValidateProviderConfig(t *testing.T) {
	c, _ := setup(t)
	for name, tt := range map[string]struct {
		config attrs
		words  []string
	}{
		"no scheme":      {attrs{"endpoint": "coordinator:8080"}, []string{"endpoint", `"https://"`}},
		"of several":     {attrs{"endpoints": []string{"https://a", "b:1"}}, []string{"endpoints[1]", `"https://"`}},
		"one and many":   {attrs{"endpoint": "https://a", "endpoints": []string{"https://b"}}, []string{"endpoints", "conflicts"}},
		"both kinds":     {attrs{"token": "hidden", "password": "hidden"}, []string{"token", "conflicts with username and password"}},
		"text and file":  {attrs{"client_key_file": "k", "client_key": pemText("PRIVATE KEY", nil)}, []string{"client_key"}},
		"no PEM":         {attrs{"ca_certificate": "ca.pem"}, []string{"ca_certificate", "ca_certificate_file"}},
		"request id":     {attrs{"request_id_prefix": "a b"}, []string{"request_id_prefix", "may only contain"}},
		"budget":         {attrs{"retry_budget": "2h"}, []string{"retry_budget", "1h"}},
		"budget, spelt":  {attrs{"retry_budget": "soon"}, []string{"retry_budget", "duration"}},
		"long requester": {attrs{"requested_by": strings.Repeat("x", 1025)}, []string{"requested_by", "1024"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := errorsOf(c.validateProvider(tt.config))
			if len(all) == 0 {
				t.Fatal("no error")
			}
			for _, w := range tt.words {
				if !strings.Contains(strings.Join(all, "\n"), w) {
					t.Errorf("errors do not say %q: %q", w, all)
				}
			}
			if strings.Contains(strings.Join(all, "\n"), "hidden") {
				t.Errorf("a secret is shown: %q", all)
			}
		})
	}
}

func TestPlainText(t *testing.T) {
	for endpoint, want := range map[string]bool{
		"http://coordinator": true, "http://10.0.0.1:80": true, "https://coordinator": false, "http://localhost:1": false, "http://127.0.0.1": false, "http://[::1]:8": false,
	} {
		if plainText(endpoint) != want {
			t.Errorf("%s: want %v", endpoint, want)
		}
	}
}
