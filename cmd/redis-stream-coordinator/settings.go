package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/server"
	"github.com/redisstream/terraform-provider-redisstream/server/httpapi"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
)

const envPrefix = "RSC_"

// settings is everything that the command line, the environment and the file can set. The
// names are those of the flags.
type settings struct {
	Listen                   string        `koanf:"listen"`
	TLSCertFile              string        `koanf:"tls-cert-file"`
	TLSKeyFile               string        `koanf:"tls-key-file"`
	RedisURL                 string        `koanf:"redis-url"`
	RedisURLFile             string        `koanf:"redis-url-file"`
	KeyPrefix                string        `koanf:"key-prefix"`
	WaitReplicas             int           `koanf:"wait-replicas"`
	AdminUsername            string        `koanf:"admin-username"`
	AdminPassword            string        `koanf:"admin-password"`
	AdminPasswordFile        string        `koanf:"admin-password-file"`
	InsecureAllowAnonymous   bool          `koanf:"insecure-allow-anonymous"`
	InsecureAnonymousMembers bool          `koanf:"insecure-anonymous-members"`
	TokenSecret              string        `koanf:"token-secret"`
	TokenSecretFile          string        `koanf:"token-secret-file"`
	TokenTTL                 time.Duration `koanf:"token-ttl"`
	CoordinatorID            string        `koanf:"coordinator-id"`
	TrustedProxies           []string      `koanf:"trusted-proxies"`
	BodyLimit                int64         `koanf:"body-limit"`
	DefaultShardCount        int           `koanf:"default-shard-count"`
	RoutingLease             time.Duration `koanf:"routing-lease"`
	StartTimeout             time.Duration `koanf:"start-timeout"`
	ShutdownDelay            time.Duration `koanf:"shutdown-delay"`
	StopTimeout              time.Duration `koanf:"stop-timeout"`
	LogLevel                 string        `koanf:"log-level"`
	LogFormat                string        `koanf:"log-format"`

	// Users can only stand in the file.
	Users []userSetting `koanf:"users"`
}

type userSetting struct {
	Name         string   `koanf:"name"`
	Password     string   `koanf:"password"`
	PasswordFile string   `koanf:"password-file"`
	Roles        []string `koanf:"roles"`
}

// addServeFlags declares the flags of serve; their defaults are those of all sources.
func addServeFlags(fs *pflag.FlagSet) {
	fs.String("config", "", "YAML file with settings, named like the flags")
	addCommonFlags(fs)
	fs.String("listen", server.DefaultListen, "host:port of the HTTP API")
	fs.String("redis-url", server.DefaultRedisURL, "redis://, rediss://, unix://, redis+cluster:// or redis+sentinel:// URL of the store")
	fs.String("redis-url-file", "", "file that holds the URL, in place of --redis-url")
	fs.Int("wait-replicas", -1, "Redis replicas that must confirm seals and decisions; -1: one when one is connected")
	fs.String("tls-cert-file", "", "PEM certificate chain; with --tls-key-file, HTTPS is served")
	fs.String("tls-key-file", "", "PEM key of the certificate")
	fs.Bool("insecure-allow-anonymous", false, "let requests without credentials do everything")
	fs.Bool("insecure-anonymous-members", false, "let heartbeats, and nothing else, come without credentials")
	fs.StringSlice("trusted-proxies", nil, "addresses and networks whose X-Forwarded-For is believed")
	fs.Duration("start-timeout", server.DefaultStartTimeout, "wait this long for Redis before serving unready")
	fs.Duration("shutdown-delay", 5*time.Second, "go on serving with readiness 503 this long after SIGTERM")
	fs.String("log-level", "info", "debug, info, warn or error")
	fs.String("log-format", "json", "json or console")
}

// addCommonFlags declares what serve and dev share.
func addCommonFlags(fs *pflag.FlagSet) {
	fs.String("key-prefix", redisstore.DefaultKeyPrefix, "prefix of all coordinator keys in Redis")
	fs.String("admin-username", "admin", "name of the first user, with role ADMIN")
	fs.String("admin-password", "", "its password; process lists show flags, so prefer RSC_ADMIN_PASSWORD or the file")
	fs.String("admin-password-file", "", "file that holds the password")
	fs.String("token-secret", "", "key of bearer tokens, at least 32 bytes, the same for all replicas; empty: random")
	fs.String("token-secret-file", "", "file that holds the key of bearer tokens")
	fs.Duration("token-ttl", httpapi.DefaultTokenTTL, "life of a bearer token")
	fs.String("coordinator-id", "", "name of this replica; empty: host name and a random suffix")
	fs.Int64("body-limit", httpapi.DefaultBodyLimit, "largest request body in bytes")
	fs.Int("default-shard-count", httpapi.DefaultShardCount, "shards of a stream that is created without a count")
	fs.Duration("routing-lease", 30*time.Second, "how long a producer may use a routing unasked")
	fs.Duration("stop-timeout", server.DefaultStopTimeout, "cut off what has not finished this long after the shutdown delay")
}

// loadSettings merges defaults, file, environment and flags, the later over the earlier.
func loadSettings(fs *pflag.FlagSet) (settings, error) {
	k := koanf.New("\x00") // keys have no levels
	path, _ := fs.GetString("config")
	if path == "" {
		path = os.Getenv(envPrefix + "CONFIG")
	}
	if path != "" {
		if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
			return settings{}, fmt.Errorf("config file: %w", err)
		}
	}
	if err := k.Load(env.Provider("\x00", env.Opt{Prefix: envPrefix, TransformFunc: fromEnvironment}), nil); err != nil {
		return settings{}, fmt.Errorf("environment: %w", err)
	}
	if err := k.Load(posflag.Provider(fs, "\x00", k), nil); err != nil {
		return settings{}, fmt.Errorf("flags: %w", err)
	}
	for _, other := range []string{"config", "help"} { // flags that set nothing of the server
		k.Delete(other)
	}

	if err := refuseUnknown(k); err != nil {
		return settings{}, err
	}
	var set settings
	if err := k.Unmarshal("", &set); err != nil {
		return settings{}, fmt.Errorf("settings: %w", err)
	}
	return set, set.readFiles()
}

// refuseUnknown finds typing errors in the file.
func refuseUnknown(k *koanf.Koanf) error {
	known := tagNames(reflect.TypeFor[settings]())
	for _, key := range k.Keys() {
		if !slices.Contains(known, key) {
			return fmt.Errorf("config file: %q is not a setting", strings.ReplaceAll(key, "\x00", "."))
		}
	}
	users, _ := k.Get("users").([]any)
	known = tagNames(reflect.TypeFor[userSetting]())
	for i, u := range users {
		fields, _ := u.(map[string]any)
		for key := range fields {
			if !slices.Contains(known, key) {
				return fmt.Errorf("config file: users[%d]: %q is not a setting", i, key)
			}
		}
	}
	return nil
}

// fromEnvironment names the setting of an environment variable. What is no setting is left
// alone: Kubernetes and others put variables of their own beside ours.
func fromEnvironment(name, value string) (string, any) {
	key := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "_", "-")
	if !slices.Contains(tagNames(reflect.TypeFor[settings]()), key) || key == "users" {
		return "", nil
	}
	if key == "trusted-proxies" { // the one list
		return key, strings.Split(value, ",")
	}
	return key, value
}

// tagNames lists the settings of a struct.
func tagNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		names = append(names, f.Tag.Get("koanf"))
	}
	return names
}

// readFiles fills secrets from the files that hold them. One given in both ways is refused.
func (s *settings) readFiles() error {
	read := func(name string, value *string, path string) error {
		if path == "" {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%s-file: %w", name, err)
		}
		*value = strings.TrimRight(string(content), "\r\n")
		return nil
	}
	errs := []error{
		read("redis-url", &s.RedisURL, s.RedisURLFile),
		read("admin-password", &s.AdminPassword, s.AdminPasswordFile),
		read("token-secret", &s.TokenSecret, s.TokenSecretFile),
	}
	for i := range s.Users {
		u := &s.Users[i]
		errs = append(errs, read("users["+u.Name+"].password", &u.Password, u.PasswordFile))
	}
	return errors.Join(errs...)
}

// config is what package server is told.
func (s settings) config(logger *zap.Logger) (server.Config, error) {
	cfg := server.Config{
		Listen: s.Listen, TLSCertFile: s.TLSCertFile, TLSKeyFile: s.TLSKeyFile,
		RedisURL: s.RedisURL, KeyPrefix: s.KeyPrefix, WaitReplicas: s.WaitReplicas,
		InsecureAllowAnonymous: s.InsecureAllowAnonymous, InsecureAnonymousMembers: s.InsecureAnonymousMembers,
		TokenSecret: s.TokenSecret, TokenTTL: s.TokenTTL,
		Version: version, CoordinatorID: s.CoordinatorID, TrustedProxies: s.TrustedProxies, BodyLimit: s.BodyLimit,
		DefaultShardCount: s.DefaultShardCount, RoutingLease: s.RoutingLease,
		StartTimeout: s.StartTimeout, StartUnready: true, ShutdownDelay: s.ShutdownDelay, StopTimeout: s.StopTimeout,
		Logger: logger,
	}
	for _, u := range s.Users {
		cfg.Users = append(cfg.Users, server.User{Name: u.Name, Password: u.Password, Roles: u.Roles})
	}
	switch {
	case s.AdminPassword != "":
		cfg.AdminUsername, cfg.AdminPassword = s.AdminUsername, s.AdminPassword
	case len(s.Users) == 0 && !s.InsecureAllowAnonymous:
		return server.Config{}, errors.New("no user is configured: set RSC_ADMIN_PASSWORD (or --admin-password-file, or users in the file), " +
			"or --insecure-allow-anonymous to let everybody in")
	}
	return cfg, nil
}
