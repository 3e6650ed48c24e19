//! Which kind of index the maps of a trial are.

use pando::MapOptions;

/// How maps are created.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Created {
    /// The kind of index that maps are [default: that of a map of which nothing is said]
    #[arg(long, value_name = "NAME")]
    pub kind: Option<String>,
    /// What is set of each map, such as node_lines=4; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    pub settings: Vec<(String, String)>,
}

fn setting(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

impl Created {
    /// The same for the library.
    pub fn options(&self) -> MapOptions {
        let mut options = MapOptions::new();
        if let Some(kind) = &self.kind {
            options = options.kind(kind);
        }
        self.settings.iter().fold(options, |options, (name, value)| options.set(name, value))
    }

    /// The same as words of a command line, of ours or of `pando`.
    pub fn words(&self) -> Vec<String> {
        let kind = self.kind.iter().map(|kind| format!("--kind={kind}"));
        let settings = self.settings.iter().map(|(name, value)| format!("--set={name}={value}"));
        kind.chain(settings).collect()
    }
}
