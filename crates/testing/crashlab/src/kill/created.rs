//! Which kind of index the maps of a trial are.

use pando::MapOptions;

/// The kinds of index that are tried, one pool after the other, unless one is asked for.
pub const KINDS: [&str; 5] = ["bztree", "nbtree", "wbtree", "skiplist", "bwtree"];

/// How maps are created.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Created {
    /// The kind of index that maps are [default: in each pool another one]
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
    /// How those of the pool of that number are: of a kind in turn, if nothing is asked for.
    pub fn in_pool(&self, number: u64) -> Self {
        if self.kind.is_some() || !self.settings.is_empty() {
            return self.clone();
        }
        let kind = KINDS[(number % KINDS.len() as u64) as usize].to_owned();
        Self { kind: Some(kind), settings: Vec::new() }
    }

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
