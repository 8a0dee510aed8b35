package provider

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
)

// httpClient verifies the coordinator by the system's certificate authorities, or by those of
// the configuration instead, and presents the client's certificate if there is one.
func httpClient(s settings) (*http.Client, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.insecureSkipVerify} //nolint:gosec // off unless it is asked for, and warned about
	if s.caCertificate != "" {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM([]byte(s.caCertificate)) {
			return nil, &problem{"ca_certificate", "holds no certificate that can be read"}
		}
	}
	if s.clientCert != "" {
		pair, err := tls.X509KeyPair([]byte(s.clientCert), []byte(s.clientKey))
		if err != nil {
			return nil, &problem{"client_certificate", "does not go with the client key: " + err.Error()}
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return client.NewHTTPClient(cfg), nil
}

// pemProblem says what is wrong with the PEM text of an argument, "" for nothing. It never
// repeats any of it.
func pemProblem(argument, text string) string {
	key := argument == "client_key"
	want := "CERTIFICATE"
	if key {
		want = "PRIVATE KEY"
	}
	rest, found := []byte(text), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if !strings.HasSuffix(block.Type, want) {
			continue
		}
		if key && (strings.HasPrefix(block.Type, "ENCRYPTED") || block.Headers["DEK-Info"] != "") {
			return "is encrypted; give the key without a passphrase"
		}
		if err := parseBlock(key, block.Bytes); err != nil {
			return fmt.Sprintf("the %s in it cannot be read: %v", strings.ToLower(want), err)
		}
		found++
	}
	if found == 0 {
		return fmt.Sprintf("holds no PEM block \"-----BEGIN %s-----\"; for the name of a file there is %s_file", want, argument)
	}
	return ""
}

func parseBlock(key bool, der []byte) error {
	if !key {
		_, err := x509.ParseCertificate(der)
		return err
	}
	for _, parse := range []func([]byte) (any, error){
		x509.ParsePKCS8PrivateKey,
		func(b []byte) (any, error) { return x509.ParsePKCS1PrivateKey(b) },
		func(b []byte) (any, error) { return x509.ParseECPrivateKey(b) },
	} {
		if _, err := parse(der); err == nil {
			return nil
		}
	}
	return errors.New("it is neither PKCS #8, PKCS #1 nor SEC 1")
}
