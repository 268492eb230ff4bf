package s3origin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go/logging"
)

// The values of Credentials.Source.
const (
	SourceDefault   = "default"   // the AWS SDKs' chain: environment, profile, web identity, ECS, IMDS
	SourceStatic    = "static"    // AccessKey and SecretKey
	SourceAnonymous = "anonymous" // requests are not signed
)

// Credentials says whose name requests are signed in. Its text forms hide the secrets.
type Credentials struct {
	Source string // one of the above; "" means SourceDefault

	Profile      string // SourceDefault: of the shared configuration; "" is what AWS_PROFILE says
	AccessKey    string // SourceStatic
	SecretKey    string // SourceStatic
	SessionToken string // SourceStatic; "" for none

	// Provider is asked instead of all that, if set. It is wrapped in an aws.CredentialsCache unless it is one.
	Provider aws.CredentialsProvider
}

// String names source and access key.
func (c Credentials) String() string {
	if c.Provider != nil {
		return "provider"
	}
	if c.Source == SourceStatic {
		return c.Source + " " + c.AccessKey
	}
	return c.Source
}

// GoString is String, so that %#v hides the secrets as well.
func (c Credentials) GoString() string { return c.String() }

// refreshBefore is how long before their end temporary credentials are replaced.
const refreshBefore = time.Minute

// load returns the provider, nil for anonymous, and the region. The chain itself is not asked yet: only Resolve and the
// first request need its answer.
//
// Of the SDK's own settings AWS_ENDPOINT_URL does not reach the services that credentials come from, since the SDK
// resolves it after them; AWS_ENDPOINT_URL_STS does, as it should.
func (c Credentials) load(ctx context.Context, region string, log *slog.Logger) (aws.CredentialsProvider, string, error) {
	var provider aws.CredentialsProvider
	chain := false
	switch {
	case c.Provider != nil:
		if !aws.IsCredentialsProvider(c.Provider, aws.AnonymousCredentials{}) {
			provider = cached(c.Provider)
		}
	case c.Source == SourceStatic:
		if c.AccessKey == "" || c.SecretKey == "" {
			return nil, "", errors.New("s3origin: static credentials need an access key and a secret key")
		}
		provider = credentials.NewStaticCredentialsProvider(c.AccessKey, c.SecretKey, c.SessionToken)
	case c.Source == SourceAnonymous:
	case c.Source == SourceDefault || c.Source == "":
		chain = true
	default:
		return nil, "", fmt.Errorf("s3origin: credentials source %q: must be %s, %s or %s",
			c.Source, SourceDefault, SourceStatic, SourceAnonymous)
	}
	if !chain && region != "" {
		return provider, region, nil
	}

	opts := []func(*config.LoadOptions) error{
		config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = refreshBefore }),
		config.WithLogger(sdkLogger(log)), // else it writes to stderr by itself
	}
	if region != "" {
		opts = append(opts, config.WithRegion(region))
	}
	if c.Profile != "" {
		opts = append(opts, config.WithSharedConfigProfile(c.Profile))
	}
	if !chain { // only the region is wanted
		opts = append(opts, config.WithCredentialsProvider(aws.AnonymousCredentials{}))
	}
	conf, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return nil, "", fmt.Errorf("s3origin: AWS configuration: %w", err)
	}
	if chain {
		provider = conf.Credentials
	}
	if region == "" {
		region = conf.Region
	}
	if region == "" {
		region = "us-east-1"
	}
	return provider, region, nil
}

// Share returns credentials that are these, loaded, and the region to sign for, as New would come to them: origins that
// are made with both ask one source together.
func (c Credentials) Share(ctx context.Context, region string, log *slog.Logger) (Credentials, string, error) {
	provider, region, err := c.load(ctx, region, log)
	switch {
	case err != nil:
		return Credentials{}, "", err
	case provider == nil:
		return Credentials{Source: SourceAnonymous}, region, nil
	}
	return Credentials{Provider: cached(provider)}, region, nil
}

// sdkLogger makes records of what the SDK logs: nothing but what it has to say of the sources of credentials.
func sdkLogger(log *slog.Logger) logging.Logger {
	return logging.LoggerFunc(func(c logging.Classification, format string, args ...any) {
		level := slog.LevelDebug
		if c == logging.Warn {
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, "the AWS SDK says: "+fmt.Sprintf(format, args...))
	})
}

func cached(p aws.CredentialsProvider) aws.CredentialsProvider {
	if c, ok := p.(*aws.CredentialsCache); ok {
		return c
	}
	return aws.NewCredentialsCache(p, func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = refreshBefore })
}

// Identity is what may be told of the credentials in use.
type Identity struct {
	Source    string    // where they came from, in the words of the AWS SDK; "anonymous" for none
	AccessKey string    // the access key id; "" when anonymous
	Expires   time.Time // zero when they don't
	Region    string    // that requests are signed for
}

// Resolve fetches the credentials, or takes them from the cache, and says whose they are. The error tells why there are
// none; it holds no secrets.
func (o *Origin) Resolve(ctx context.Context) (Identity, error) {
	if o.creds == nil {
		return Identity{Source: SourceAnonymous, Region: o.region}, nil
	}
	c, err := o.creds.Retrieve(ctx)
	if err != nil {
		return Identity{}, &credentialsError{err}
	}
	id := Identity{Source: c.Source, AccessKey: c.AccessKeyID, Region: o.region}
	if c.CanExpire {
		id.Expires = c.Expires
	}
	return id, nil
}

// credentialsError is a request that was never sent, for want of credentials.
type credentialsError struct{ err error }

func (e *credentialsError) Error() string { return "s3origin: no credentials: " + e.err.Error() }
func (e *credentialsError) Unwrap() error { return e.err }
