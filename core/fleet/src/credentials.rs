//! Where the store is and who we are there, as the tools of AWS find it: variables, a token of a web identity, files.
//!
//! Enters: the environment, and the files that it names. Leaves: an endpoint, a region and credentials, which nothing here prints.
//! Sources: "Configuration and credential precedence" and "Environment variables" in the AWS CLI's user guide;
//! AssumeRoleWithWebIdentity in the reference of AWS STS.

use std::path::{Path, PathBuf};

use configparser::ini::Ini;
use instant_xml::FromXml;
use rusty_s3::Credentials;

use crate::FleetError;

/// Reads a variable; an empty one counts as missing.
pub(crate) type Variable<'v> = dyn Fn(&str) -> Option<String> + 'v;

/// A store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    /// The URL of the store; `None` for AWS itself.
    pub(crate) endpoint: Option<String>,
    pub(crate) region: String,
    /// The URL that exchanges tokens for credentials; `None` for AWS's.
    token_service: Option<String>,
}

impl Store {
    /// Finds the store.
    pub(crate) fn find(variable: &Variable<'_>) -> Result<Store, FleetError> {
        let profile = Profile::read(variable)?;
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        let region = region.or_else(|| profile.get("region")).unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = |service: &str| {
            let of_service = variable(&format!("AWS_ENDPOINT_URL_{service}"));
            of_service.or_else(|| variable("AWS_ENDPOINT_URL")).or_else(|| profile.get("endpoint_url"))
        };
        Ok(Store { endpoint: endpoint("S3"), region, token_service: endpoint("STS") })
    }

    /// Finds the credentials for the store. The token of a web identity is exchanged by a request through `agent`.
    pub(crate) fn credentials(
        &self,
        variable: &Variable<'_>,
        agent: &ureq::Agent,
    ) -> Result<Credentials, FleetError> {
        let profile = Profile::read(variable)?;
        let of_keys = |get: &Variable<'_>, key: &str, secret: &str, token: &str| {
            let (key, secret) = (get(key)?, get(secret)?);
            Some(match get(token) {
                Some(token) => Credentials::new_with_token(key, secret, token),
                None => Credentials::new(key, secret),
            })
        };
        let of_profile = |name: &str| profile.get(name);
        let by_keys = of_keys(variable, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN");
        let identity = Identity::find(variable, &profile);
        match (by_keys, identity) {
            (Some(credentials), _) => Ok(credentials),
            (None, Some(identity)) => identity.exchange(&self.region, self.token_service.as_deref(), agent),
            (None, None) => {
                let names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token");
                of_keys(&of_profile, names.0, names.1, names.2).ok_or_else(|| profile.nothing_found())
            }
        }
    }
}

/// A profile of the shared files.
struct Profile {
    name: String,
    files: Vec<(PathBuf, Ini)>,
}

impl Profile {
    /// Reads the profile that `AWS_PROFILE` names from the file of credentials and from that of the configuration.
    fn read(variable: &Variable<'_>) -> Result<Profile, FleetError> {
        let name = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
        let home = variable("HOME").map(|home| Path::new(&home).join(".aws"));
        let mut files = Vec::new();
        for (given, usual) in [("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")]
        {
            let given = variable(given).map(PathBuf::from);
            let Some(path) = given.or_else(|| home.as_ref().map(|home| home.join(usual))) else { continue };
            let text = match std::fs::read_to_string(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                read => read.map_err(|source| FleetError::File { path: path.clone(), source })?,
            };
            // Names of profiles are case-sensitive.
            let mut ini = Ini::new_cs();
            // The parser's message may quote a line, and so a secret.
            let bad = |_| FleetError::Credentials(format!("{}: it is not an INI file", path.display()));
            ini.read(text).map_err(bad)?;
            files.push((path, ini));
        }
        Ok(Profile { name, files })
    }

    fn get(&self, key: &str) -> Option<String> {
        let sections = [self.name.clone(), format!("profile {}", self.name)];
        let found = |ini: &Ini| sections.iter().find_map(|section| ini.get(section, key));
        self.files.iter().find_map(|(_, ini)| found(ini)).filter(|value| !value.is_empty())
    }

    fn nothing_found(&self) -> FleetError {
        let files: Vec<String> = self.files.iter().map(|(path, _)| path.display().to_string()).collect();
        let files = if files.is_empty() { "no file of AWS's".to_owned() } else { files.join(" and ") };
        FleetError::Credentials(format!(
            "no credentials: AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY is not set, nor AWS_WEB_IDENTITY_TOKEN_FILE with \
             AWS_ROLE_ARN, and the profile '{}' has none ({files} was found)",
            self.name
        ))
    }
}

/// An identity that another service vouches for, such as that of a pod.
struct Identity {
    token_file: PathBuf,
    role: String,
    session: String,
}

impl Identity {
    fn find(variable: &Variable<'_>, profile: &Profile) -> Option<Identity> {
        let of = |name: &str, key: &str| variable(name).or_else(|| profile.get(key));
        Some(Identity {
            token_file: of("AWS_WEB_IDENTITY_TOKEN_FILE", "web_identity_token_file")?.into(),
            role: of("AWS_ROLE_ARN", "role_arn")?,
            session: of("AWS_ROLE_SESSION_NAME", "role_session_name").unwrap_or_else(|| "dwell".to_owned()),
        })
    }

    /// Exchanges the token for credentials, which are valid for an hour.
    fn exchange(
        &self,
        region: &str,
        endpoint: Option<&str>,
        agent: &ureq::Agent,
    ) -> Result<Credentials, FleetError> {
        let token = std::fs::read_to_string(&self.token_file)
            .map_err(|source| FleetError::File { path: self.token_file.clone(), source })?;
        let url = endpoint.map_or_else(|| format!("https://sts.{region}.amazonaws.com/"), str::to_owned);
        // In the body, and not in the URL, which proxies log.
        let form = [
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", "2011-06-15"),
            ("RoleArn", &self.role),
            ("RoleSessionName", &self.session),
            ("WebIdentityToken", token.trim()),
        ];
        let failed = |why: String| {
            FleetError::Credentials(format!("the role {} cannot be assumed at {url}: {why}", self.role))
        };
        let mut answer = agent.post(&url).send_form(form).map_err(|e| failed(e.to_string()))?;
        let text = answer.body_mut().read_to_string().map_err(|e| failed(e.to_string()))?;
        if !answer.status().is_success() {
            return Err(failed(crate::client::code_in(&text).unwrap_or_else(|| answer.status().to_string())));
        }
        let assumed: Assumed =
            instant_xml::from_str(&text).map_err(|_| failed("its answer is no answer of STS".into()))?;
        let Assumed { result: AssumedResult { credentials: c } } = assumed;
        Ok(Credentials::new_with_token(c.key, c.secret, c.token))
    }
}

const STS_NS: &str = "https://sts.amazonaws.com/doc/2011-06-15/";

#[derive(FromXml)]
#[xml(rename = "AssumeRoleWithWebIdentityResponse", ns(STS_NS))]
struct Assumed {
    result: AssumedResult,
}

#[derive(FromXml)]
#[xml(rename = "AssumeRoleWithWebIdentityResult", ns(STS_NS))]
struct AssumedResult {
    credentials: AssumedCredentials,
}

#[derive(FromXml)]
#[xml(rename = "Credentials", ns(STS_NS))]
struct AssumedCredentials {
    #[xml(rename = "AccessKeyId")]
    key: String,
    #[xml(rename = "SecretAccessKey")]
    secret: String,
    #[xml(rename = "SessionToken")]
    token: String,
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn find(variables: &[(&str, &str)]) -> Result<(String, String, Option<String>), String> {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        let variable = |name: &str| variables.get(name).map(|value| (*value).to_owned());
        let store = Store::find(&variable).map_err(|error| error.to_string())?;
        let credentials = store.credentials(&variable, &ureq::agent()).map_err(|error| error.to_string())?;
        Ok((credentials.key().to_owned(), store.region, store.endpoint))
    }

    #[test]
    fn variables_come_before_files() {
        let folder = tempfile::tempdir().unwrap();
        let (credentials, config) = (folder.path().join("c"), folder.path().join("config"));
        std::fs::write(&credentials, "[default]\naws_access_key_id = A\naws_secret_access_key = s=e/c\n[Two]\naws_access_key_id = B\naws_secret_access_key = s\n")
            .unwrap();
        std::fs::write(&config, "[default]\nregion = eu-west-1\n[profile Two]\nregion=eu-west-2\nendpoint_url = http://localhost:9000\n")
            .unwrap();
        let files = [
            ("AWS_SHARED_CREDENTIALS_FILE", credentials.to_str().unwrap()),
            ("AWS_CONFIG_FILE", config.to_str().unwrap()),
        ];
        let with = |more: &[(&str, &str)]| find(&[&files[..], more].concat()).unwrap();
        assert_eq!(with(&[]), ("A".into(), "eu-west-1".into(), None));
        assert_eq!(
            with(&[("AWS_PROFILE", "Two")]),
            ("B".into(), "eu-west-2".into(), Some("http://localhost:9000".into()))
        );
        let keys = [("AWS_ACCESS_KEY_ID", "C"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_REGION", "x-1")];
        assert_eq!(with(&keys), ("C".into(), "x-1".into(), None));
    }

    #[test]
    fn no_credentials_are_an_error_that_says_what_was_looked_for() {
        let error = find(&[("AWS_PROFILE", "none")]).unwrap_err();
        assert!(error.contains("AWS_ACCESS_KEY_ID") && error.contains("'none'"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c");
        std::fs::write(&path, "[default\nsecret").unwrap();
        let error = find(&[("AWS_SHARED_CREDENTIALS_FILE", path.to_str().unwrap())]).unwrap_err();
        assert!(error.contains("not an INI file") && !error.contains("secret\n"), "{error}");
    }
}
