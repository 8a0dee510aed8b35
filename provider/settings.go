package provider

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Environment variables that stand in for arguments that the configuration leaves out.
const (
	envEndpoint       = "REDISSTREAM_ENDPOINT"
	envEndpoints      = "REDISSTREAM_ENDPOINTS"
	envUsername       = "REDISSTREAM_USERNAME"
	envPassword       = "REDISSTREAM_PASSWORD"
	envToken          = "REDISSTREAM_TOKEN"
	envTokenFile      = "REDISSTREAM_TOKEN_FILE"
	envCA             = "REDISSTREAM_CA_CERTIFICATE"
	envCAFile         = "REDISSTREAM_CA_CERTIFICATE_FILE"
	envClientCert     = "REDISSTREAM_CLIENT_CERTIFICATE"
	envClientCertFile = "REDISSTREAM_CLIENT_CERTIFICATE_FILE"
	envClientKey      = "REDISSTREAM_CLIENT_KEY"
	envClientKeyFile  = "REDISSTREAM_CLIENT_KEY_FILE"
	envInsecure       = "REDISSTREAM_INSECURE_SKIP_VERIFY"
	envRequestID      = "REDISSTREAM_REQUEST_ID_PREFIX"
	envRequestedBy    = "REDISSTREAM_REQUESTED_BY"
	envRetryBudget    = "REDISSTREAM_RETRY_BUDGET"
)

// Bounds of the retry budget.
const (
	defaultRetryBudget = time.Minute
	leastRetryBudget   = time.Second
	mostRetryBudget    = time.Hour
)

// settings are the provider's arguments after the environment has filled the gaps. Certificates
// and keys are PEM texts; the token of a token file is read when it is needed.
type settings struct {
	endpoints                            []string
	username, password, token, tokenFile string
	caCertificate, clientCert, clientKey string
	insecureSkipVerify                   bool
	requestIDPrefix, requestedBy         string
	retryBudget                          time.Duration // 0: not set
}

// secrets lists the values that must not appear anywhere.
func (s settings) secrets() *secretSet {
	set := new(secretSet)
	set.add(s.password, s.token)
	if s.password != "" { // as HTTP Basic authentication writes it
		set.add(base64.StdEncoding.EncodeToString([]byte(s.username + ":" + s.password)))
	}
	for line := range strings.Lines(s.clientKey) {
		if line = strings.TrimSpace(line); len(line) >= shortSecret && !strings.HasPrefix(line, "-----") {
			set.add(line)
		}
	}
	return set
}

// surroundings is what resolve may look at beside the configuration.
type surroundings struct {
	getenv   func(string) string
	readFile func(string) ([]byte, error)
}

// valueOr is the value of an argument; where that is left out, of the environment variable.
func (from surroundings) valueOr(v types.String, env string) string {
	if v.IsNull() {
		return from.getenv(env)
	}
	return v.ValueString()
}

// problem is an argument that cannot be used as it is. Its text names the rule, never the value
// of a secret.
type problem struct{ argument, text string }

func (p *problem) Error() string { return p.argument + ": " + p.text }

// resolve merges configuration and environment. What the configuration says outright beats
// another way to say the same in the environment. A problem names the variable that is to blame,
// since nothing in the configuration is.
func resolve(cfg providerModel, from surroundings) (settings, *problem) {
	s, p := merge(cfg, from)
	if p == nil || strings.Contains(p.text, "environment variable") {
		return s, p
	}
	if env := variableOf(p.argument, cfg); env != "" && from.getenv(env) != "" {
		p.text += " (set by environment variable " + env + ")"
	}
	return s, p
}

// variableOf is the environment variable that an argument is taken from; "" when the configuration
// has it, or another way to say it.
func variableOf(argument string, cfg providerModel) string {
	for _, a := range []struct {
		name, env string
		absent    bool
	}{
		{"endpoint", envEndpoint, cfg.Endpoint.IsNull() && cfg.Endpoints.IsNull()},
		{"endpoints", envEndpoints, cfg.Endpoint.IsNull() && cfg.Endpoints.IsNull()},
		{"username", envUsername, cfg.Username.IsNull()},
		{"password", envPassword, cfg.Password.IsNull()},
		{"token", envToken, cfg.Token.IsNull()},
		{"token_file", envTokenFile, cfg.TokenFile.IsNull()},
		{"ca_certificate", envCA, cfg.CACertificate.IsNull() && cfg.CACertificateFile.IsNull()},
		{"ca_certificate_file", envCAFile, cfg.CACertificate.IsNull() && cfg.CACertificateFile.IsNull()},
		{"client_certificate", envClientCert, cfg.ClientCertificate.IsNull() && cfg.ClientCertificateFile.IsNull()},
		{"client_certificate_file", envClientCertFile, cfg.ClientCertificate.IsNull() && cfg.ClientCertificateFile.IsNull()},
		{"client_key", envClientKey, cfg.ClientKey.IsNull() && cfg.ClientKeyFile.IsNull()},
		{"client_key_file", envClientKeyFile, cfg.ClientKey.IsNull() && cfg.ClientKeyFile.IsNull()},
		{"insecure_skip_verify", envInsecure, cfg.InsecureSkipVerify.IsNull()},
		{"request_id_prefix", envRequestID, cfg.RequestIDPrefix.IsNull()},
		{"requested_by", envRequestedBy, cfg.RequestedBy.IsNull()},
		{"retry_budget", envRetryBudget, cfg.RetryBudget.IsNull()},
	} {
		if a.name == argument && a.absent {
			return a.env
		}
	}
	return ""
}

// merge is resolve but for the names of variables in its problems.
func merge(cfg providerModel, from surroundings) (settings, *problem) {
	var s settings
	for _, step := range []func() *problem{
		func() (p *problem) { s.endpoints, p = endpoints(cfg, from); return p },
		func() *problem { return credentials(cfg, from, &s) },
		func() (p *problem) {
			s.caCertificate, p = textOrFile("ca_certificate", cfg.CACertificate, cfg.CACertificateFile, envCA, envCAFile, from)
			return p
		},
		func() (p *problem) {
			s.clientCert, p = textOrFile("client_certificate", cfg.ClientCertificate, cfg.ClientCertificateFile, envClientCert, envClientCertFile, from)
			return p
		},
		func() (p *problem) {
			s.clientKey, p = textOrFile("client_key", cfg.ClientKey, cfg.ClientKeyFile, envClientKey, envClientKeyFile, from)
			return p
		},
	} {
		if p := step(); p != nil {
			return s, p
		}
	}
	switch {
	case s.clientCert != "" && s.clientKey == "":
		return s, &problem{"client_key", "is missing, though a client certificate is set; set client_key or client_key_file"}
	case s.clientCert == "" && s.clientKey != "":
		return s, &problem{"client_certificate", "is missing, though a client key is set; set client_certificate or client_certificate_file"}
	}

	s.insecureSkipVerify = cfg.InsecureSkipVerify.ValueBool()
	if text := strings.TrimSpace(from.getenv(envInsecure)); cfg.InsecureSkipVerify.IsNull() && text != "" {
		v, err := strconv.ParseBool(text)
		if err != nil {
			return s, &problem{"insecure_skip_verify", "must be true or false"}
		}
		s.insecureSkipVerify = v
	}
	s.requestIDPrefix = from.valueOr(cfg.RequestIDPrefix, envRequestID)
	if text := requestIDProblem(s.requestIDPrefix); text != "" {
		return s, &problem{"request_id_prefix", text}
	}
	s.requestedBy = strings.TrimSpace(from.valueOr(cfg.RequestedBy, envRequestedBy))
	switch {
	case len(s.requestedBy) > protocol.MaxReasonBytes:
		return s, &problem{"requested_by", fmt.Sprintf("is %d bytes long; at most %d are allowed", len(s.requestedBy), protocol.MaxReasonBytes)}
	case s.requestedBy == "":
		s.requestedBy = "terraform:" + workspace(from.getenv, from.readFile)
	}
	if text := strings.TrimSpace(from.valueOr(cfg.RetryBudget.StringValue, envRetryBudget)); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < leastRetryBudget || d > mostRetryBudget {
			return s, &problem{"retry_budget", fmt.Sprintf("must be a duration between %s and %s, such as \"2m\"",
				formatDuration(leastRetryBudget), formatDuration(mostRetryBudget))}
		}
		s.retryBudget = d
	}
	return s, nil
}

// endpoints are those of the configuration, else those of the environment.
func endpoints(cfg providerModel, from surroundings) ([]string, *problem) {
	var all []string
	name := "endpoints"
	one, several := from.getenv(envEndpoint), from.getenv(envEndpoints)
	switch {
	case !cfg.Endpoint.IsNull() && !cfg.Endpoints.IsNull():
		return nil, &problem{"endpoints", "conflicts with endpoint; list all addresses in endpoints"}
	case !cfg.Endpoint.IsNull():
		name, all = "endpoint", []string{cfg.Endpoint.ValueString()}
	case !cfg.Endpoints.IsNull():
		for _, e := range cfg.Endpoints.Elements() {
			if text, ok := e.(types.String); ok {
				all = append(all, text.ValueString())
			}
		}
		if len(all) == 0 {
			return nil, &problem{"endpoints", "is an empty list; name at least one coordinator"}
		}
	case strings.TrimSpace(one) != "" && strings.TrimSpace(several) != "":
		return nil, &problem{"endpoints", "environment variables " + envEndpoint + " and " + envEndpoints + " are both set; set one of them"}
	case strings.TrimSpace(one) != "":
		name, all = "endpoint", []string{one}
	default:
		for e := range strings.SplitSeq(several, ",") {
			if strings.TrimSpace(e) != "" {
				all = append(all, e)
			}
		}
	}
	if len(all) == 0 {
		return nil, &problem{"endpoint", "is missing; set it in the provider block or as environment variable " + envEndpoint}
	}
	var out []string
	for _, e := range all {
		if text := endpointProblem(e); text != "" {
			return nil, &problem{name, text}
		}
		if e = strings.TrimSpace(e); !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out, nil
}

// credentials fills in one kind of credentials, or none.
func credentials(cfg providerModel, from surroundings, s *settings) *problem {
	s.username, s.password = from.valueOr(cfg.Username, envUsername), from.valueOr(cfg.Password, envPassword)
	s.token, s.tokenFile = strings.TrimSpace(from.valueOr(cfg.Token, envToken)), strings.TrimSpace(from.valueOr(cfg.TokenFile, envTokenFile))

	if p := credentialConflict(cfg); p != nil {
		return p
	}
	switch {
	case !cfg.Username.IsNull() || !cfg.Password.IsNull():
		s.token, s.tokenFile = "", ""
	case !cfg.Token.IsNull():
		s.username, s.password, s.tokenFile = "", "", ""
	case !cfg.TokenFile.IsNull():
		s.username, s.password, s.token = "", "", ""
	}

	basic := s.username != "" || s.password != ""
	const set = "; set one kind of credentials"
	switch {
	case basic && (s.token != "" || s.tokenFile != ""):
		return &problem{"token", "conflicts with username and password, counting the environment variables " + envUsername + ", " + envPassword + ", " + envToken + " and " + envTokenFile + set}
	case s.token != "" && s.tokenFile != "":
		return &problem{"token_file", "conflicts with token, counting the environment variables " + envToken + " and " + envTokenFile + set}
	case !cfg.Username.IsNull() && s.username == "":
		return &problem{"username", "is blank; leave it out to take other credentials"}
	case !cfg.Password.IsNull() && s.password == "":
		return &problem{"password", "is blank; leave it out to take other credentials"}
	case !cfg.Token.IsNull() && s.token == "":
		return &problem{"token", "is blank"}
	case !cfg.TokenFile.IsNull() && s.tokenFile == "":
		return &problem{"token_file", "is blank"}
	case s.username == "" && s.password != "":
		return &problem{"username", "is missing, though a password is set; set it or environment variable " + envUsername}
	case s.username != "" && s.password == "":
		return &problem{"password", "is missing, though a user name is set; set it or environment variable " + envPassword}
	case strings.Contains(s.username, ":"):
		return &problem{"username", "must not contain a colon: HTTP Basic authentication cannot carry it"}
	case s.token != "" && tokenProblem(s.token) != "":
		return &problem{"token", tokenProblem(s.token)}
	}
	if s.tokenFile != "" {
		if _, err := readToken(s.tokenFile, from.readFile); err != nil {
			return &problem{"token_file", err.Error()}
		}
	}
	return nil
}

// credentialConflict is what can be seen in the configuration alone.
func credentialConflict(cfg providerModel) *problem {
	basic := declared(cfg.Username) || declared(cfg.Password)
	switch {
	case basic && declared(cfg.Token):
		return &problem{"token", "conflicts with username and password; set one kind of credentials"}
	case basic && declared(cfg.TokenFile):
		return &problem{"token_file", "conflicts with username and password; set one kind of credentials"}
	case declared(cfg.Token) && declared(cfg.TokenFile):
		return &problem{"token_file", "conflicts with token; set one of the two"}
	}
	return nil
}

// tokenFileError is a token file that gave no token when one was to be sent.
type tokenFileError struct{ err error }

func (e *tokenFileError) Error() string { return e.err.Error() }
func (e *tokenFileError) Unwrap() error { return e.err }

// readToken reads a token file. Its error names the file, never what stands in it.
func readToken(path string, readFile func(string) ([]byte, error)) (string, error) {
	text, err := readFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	if p := tokenProblem(token); p != "" {
		return "", fmt.Errorf("the token in %s %s", path, p)
	}
	return token, nil
}

// textOrFile takes a text from one argument or from the file that another names.
func textOrFile(name string, text, file types.String, envText, envFile string, from surroundings) (string, *problem) {
	inline, path := text.ValueString(), file.ValueString()
	switch {
	case !text.IsNull() && !file.IsNull():
		return "", &problem{name, "conflicts with " + name + "_file; set one of the two"}
	case text.IsNull() && file.IsNull():
		if inline, path = from.getenv(envText), from.getenv(envFile); inline != "" && path != "" {
			return "", &problem{name, "environment variables " + envText + " and " + envFile + " are both set; set one of them"}
		}
	}
	if path == "" {
		if p := pemProblem(name, inline); inline != "" && p != "" {
			return "", &problem{name, p}
		}
		return inline, nil
	}
	read, err := from.readFile(path)
	if err != nil {
		return "", &problem{name + "_file", "cannot be read: " + err.Error()}
	}
	if p := pemProblem(name, string(read)); p != "" {
		return "", &problem{name + "_file", path + ": " + p}
	}
	return string(read), nil
}

// tokenProblem says what keeps a token out of a header, "" for nothing.
func tokenProblem(token string) string {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "must not contain white space, control characters or letters outside ASCII"
	}
	return ""
}

// endpointProblem says what is wrong with a base URL, "" for nothing. The URL is not repeated:
// somebody may have put credentials into it.
func endpointProblem(endpoint string) string {
	u, err := url.Parse(strings.TrimSpace(endpoint))
	switch {
	case err != nil && !strings.Contains(endpoint, "://"), err == nil && u.Scheme != "http" && u.Scheme != "https":
		return `must begin with "https://" or "http://", such as "https://coordinator.example.com"`
	case err != nil:
		return "is not a URL"
	case u.User != nil:
		return "must not contain credentials; use username and password, or token"
	case u.Hostname() == "":
		return "has no host"
	case u.Port() != "" && !validPort(u.Port()):
		return "has a port that is none: it must be 1 to 65535"
	case u.RawQuery != "" || u.Fragment != "":
		return "must not have a query or a fragment"
	}
	return ""
}

func validPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// plainText says whether requests to an endpoint can be read on their way.
func plainText(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" || u.Hostname() == "localhost" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err != nil || !ip.IsLoopback()
}

// maxRequestIDPrefix leaves room for a UUID within what the coordinator records.
const maxRequestIDPrefix = 64

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._:-]*$`)

// requestIDProblem says what is wrong with a prefix of request ids, "" for nothing.
func requestIDProblem(prefix string) string {
	switch {
	case len(prefix) > maxRequestIDPrefix:
		return fmt.Sprintf("is %d bytes long; at most %d are allowed", len(prefix), maxRequestIDPrefix)
	case !requestIDPattern.MatchString(prefix):
		return "may only contain A-Z, a-z, 0-9 and . _ : -, so that the coordinator can record it"
	}
	return ""
}
