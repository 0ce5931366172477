//! The tools there are, and which of them an agent is told of.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use crate::lock;
use crate::mcp::{Defer, McpReach, Origin, OwnServers};
use crate::permission::{Permissions, ToolClass};
use crate::provider::ToolSpec;
use crate::tool::{Tool, ToolSource};

/// The tools a server offers.
pub struct Toolbox {
    /// By name, and so in a stable order, for the sake of the providers' prefix caches.
    tools: BTreeMap<String, Arc<dyn Tool>>,
    /// Those that are not fixed. They come after the others: what changes is at the end.
    source: Arc<dyn ToolSource>,
    /// Above so many bytes of what there is to say of them, the model is told how to find tools of servers instead.
    defer_bytes: usize,
    /// What agents of the same kind are offered: made once, since every step of a turn asks for it.
    offers: Mutex<Vec<Arc<Offer>>>,
}

/// Kinds of agents whose offer is remembered. A server has a handful of presets.
const OFFERS_MAX: usize = 64;

/// Tokens of tools of servers that are shown in full, where nobody says otherwise.
pub const DEFER_TOKENS: u32 = 2_000;

/// A token of a tool's description has about so many bytes.
const BYTES_PER_TOKEN: usize = 4;

/// The tools that agents of one kind are told of.
pub struct Offer {
    kind: OfferKind,
    pub tools: Arc<[ToolSpec]>,
    /// Of all that the model is told of them: never fewer than its tokens.
    pub bytes: usize,
}

#[derive(PartialEq, Eq)]
struct OfferKind {
    write: bool,
    commands: bool,
    agents: bool,
    disabled: BTreeSet<String>,
    mcp: McpReach,
    /// Of the source.
    version: u64,
    /// Of the servers that are in no configuration.
    own: Vec<u64>,
}

impl OfferKind {
    fn is_of(&self, permissions: &Permissions, own: &OwnServers, version: u64) -> bool {
        self.write == permissions.offers("", ToolClass::Write)
            && self.commands == permissions.commands
            && self.agents == permissions.agents
            && self.version == version
            && self.own.iter().eq(own.iter().map(|it| &it.id))
            && self.mcp == permissions.mcp
            && self.disabled == permissions.disabled_tools
    }
}

impl Default for Toolbox {
    fn default() -> Self {
        Self::new([])
    }
}

impl Toolbox {
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let tools = tools.into_iter().map(|tool| (tool.spec().name.clone(), tool)).collect();
        Self { tools, source: Arc::new(()), offers: Mutex::default(), defer_bytes: 0 }
            .deferring(DEFER_TOKENS)
    }

    /// Adds tools that are not fixed.
    pub fn with_source(mut self, source: Arc<dyn ToolSource>) -> Self {
        self.source = source;
        self
    }

    /// Shows tools of servers in full up to so many tokens, about.
    pub fn deferring(mut self, tokens: u32) -> Self {
        self.defer_bytes = tokens as usize * BYTES_PER_TOKEN;
        self
    }

    pub fn source(&self) -> &Arc<dyn ToolSource> {
        &self.source
    }

    /// One that is there for an agent with these servers of its own.
    pub fn get(&self, name: &str, own: &OwnServers) -> Option<Arc<dyn Tool>> {
        self.fixed(name).or_else(|| self.source.get(name, own))
    }

    /// One that is there for everybody, always.
    pub fn fixed(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.get(name).cloned()
    }

    /// The names of all tools of a class that are fixed.
    pub fn names(&self, class: ToolClass) -> BTreeSet<String> {
        let of_class = self.tools.iter().filter(|(_, tool)| tool.class() == class);
        of_class.map(|(name, _)| name.clone()).collect()
    }

    /// All of them, by name; those that are not fixed come after the others.
    pub fn all(&self, own: &OwnServers) -> Vec<Arc<dyn Tool>> {
        let source = self.source.tools(own);
        self.tools.values().cloned().chain(source.iter().cloned()).collect()
    }

    /// The names of all that are fixed.
    pub fn all_names(&self) -> Vec<String> {
        self.tools.keys().cloned().collect()
    }

    /// What an agent with these permissions is offered: a tool that could only be refused is not shown.
    pub fn offer(&self, permissions: &Permissions, own: &OwnServers) -> Arc<Offer> {
        let version = self.source.version();
        let mut offers = lock(&self.offers);
        if let Some(known) = offers.iter().find(|offer| offer.kind.is_of(permissions, own, version))
        {
            return known.clone();
        }
        let tools: Arc<[ToolSpec]> = self.specs(permissions, own).into();
        let bytes = tools.iter().map(ToolSpec::text_bytes).sum();
        let kind = OfferKind {
            write: permissions.offers("", ToolClass::Write),
            commands: permissions.commands,
            agents: permissions.agents,
            disabled: permissions.disabled_tools.clone(),
            mcp: permissions.mcp.clone(),
            version,
            own: own.iter().map(|it| it.id).collect(),
        };
        let offer = Arc::new(Offer { kind, tools, bytes });
        offers.retain(|offer| offer.kind.version == version);
        if offers.len() == OFFERS_MAX {
            offers.clear();
        }
        offers.push(offer.clone());
        offer
    }

    fn specs(&self, permissions: &Permissions, own: &OwnServers) -> Vec<ToolSpec> {
        let may = |tool: &&Arc<dyn Tool>| offers_tool(permissions, &***tool);
        let fixed = self.tools.values().filter(may).map(|tool| tool.spec().clone());
        let of_servers = self.source.tools(own);
        let of_servers: Vec<_> = of_servers.iter().filter(may).collect();
        let bytes: usize = of_servers.iter().map(|tool| tool.spec().text_bytes()).sum();
        let is_shown = |tool: &&Arc<dyn Tool>| match tool.origin().map(|it| it.defer) {
            Some(Defer::Always) => false,
            Some(Defer::Never) | None => true,
            Some(Defer::Auto) => bytes <= self.defer_bytes,
        };
        let deferred: Vec<_> = of_servers.iter().copied().filter(|it| !is_shown(it)).collect();
        let shown = of_servers.iter().filter(|it| is_shown(it)).map(|tool| tool.spec().clone());
        fixed
            .chain(shown)
            .chain(self.finders(&deferred, own))
            .chain(self.reader(permissions, own, &of_servers, &deferred))
            .collect()
    }

    /// What reads on in long results, for who has tools of servers, and resources of those servers that have some which the
    /// agent may read. With it stands what servers whose tools are shown say of themselves.
    fn reader(
        &self,
        permissions: &Permissions,
        own: &OwnServers,
        of_servers: &[&Arc<dyn Tool>],
        deferred: &[&Arc<dyn Tool>],
    ) -> Option<ToolSpec> {
        let (reader, readable) = self.source.reader(own)?;
        let mut spec = reader.spec().clone();
        let may = |origin: &&Origin| permissions.offers_of(origin, &spec.name);
        let servers: Vec<_> = readable.iter().filter(may).map(|it| it.server.as_str()).collect();
        let is_off = permissions.disabled_tools.contains(&spec.name);
        let is_of_use = !is_off && (!of_servers.is_empty() || !servers.is_empty());
        if !servers.is_empty() {
            let servers = servers.join(", ");
            spec.description = format!("{} Servers with resources: {servers}.", spec.description);
        }
        let origins = |tools: &[&Arc<dyn Tool>]| -> BTreeSet<String> {
            tools.iter().filter_map(|it| it.origin()).map(|it| it.server.clone()).collect()
        };
        let told = origins(deferred);
        for server in origins(of_servers).difference(&told) {
            if let Some(words) = self.source.words(server, own) {
                let _ = write!(spec.description, "\nThe server {server} says of itself: {words}");
            }
        }
        is_of_use.then_some(spec)
    }

    /// What is shown in the place of tools that are not: how to find them, with a line for each server.
    fn finders(&self, deferred: &[&Arc<dyn Tool>], own: &OwnServers) -> Vec<ToolSpec> {
        let mut servers: BTreeMap<&str, usize> = BTreeMap::new();
        for origin in deferred.iter().filter_map(|tool| tool.origin()) {
            *servers.entry(&origin.server).or_default() += 1;
        }
        if servers.is_empty() {
            return Vec::new();
        }
        let lines = servers.iter().map(|(server, count)| {
            let words = self.source.words(server, own);
            let words = words.map(|words| format!(", in its words: {words}")).unwrap_or_default();
            format!("\n- {server}: {count} tools{words}")
        });
        let lines: String = lines.collect();
        let mut specs: Vec<_> =
            self.source.finders().iter().map(|tool| tool.spec().clone()).collect();
        if let Some(first) = specs.first_mut() {
            first.description.push_str(&lines);
        }
        specs
    }
}

/// Whether a call of this tool could ever be let through.
pub(crate) fn offers_tool(permissions: &Permissions, tool: &dyn Tool) -> bool {
    let name = &tool.spec().name;
    match tool.origin() {
        Some(origin) => permissions.offers_of(origin, name),
        None => permissions.offers(name, tool.class()),
    }
}
