package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger writes to standard error, as JSON or for people.
func newLogger(level, format string) (*zap.Logger, error) {
	parsed, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log-level: %w", err)
	}
	cfg := zap.NewProductionConfig()
	cfg.Sampling = nil // the log says what happened, not a part of it
	cfg.DisableStacktrace = true
	cfg.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	cfg.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	switch format {
	case "json":
	case "console":
		cfg.Encoding = "console"
		cfg.EncoderConfig.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		cfg.EncoderConfig.EncodeLevel = zapcore.CapitalLevelEncoder
		cfg.DisableCaller = true
	default:
		return nil, fmt.Errorf("log-format: is %q; it must be json or console", format)
	}
	cfg.Level = zap.NewAtomicLevelAt(parsed)
	logger, err := cfg.Build()
	if err != nil {
		return nil, fmt.Errorf("logger: %w", err)
	}
	return logger, nil
}

// redisLog takes what the Redis client would print by itself. Its errors reach us as errors as
// well, so it is debug only.
type redisLog struct{ log *zap.Logger }

func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.log.Debug("redis client", zap.String("text", fmt.Sprintf(format, args...)))
}

func quietRedis(logger *zap.Logger) { redis.SetLogger(redisLog{logger}) }
