//! A set of memories and of questions about them, the same in every run, to see what is found: some 2,300 sentences made
//! of templates, and more than 250 questions, of which each has one right answer.
//!
//! Every person has most of the facts and every fact most of the persons, so neither a name nor a topic is enough.

/// What a question is hard by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Says it in other words, with the name.
    Paraphrase,
    /// Says it in nearly the same words.
    Name,
    /// Has a number or a code of the answer.
    Number,
    /// Asks for what is not so, where another memory says what is.
    Negation,
    /// Is German, French or Spanish, as its answer is.
    Language,
}

impl Kind {
    pub const ALL: [Self; 5] =
        [Self::Paraphrase, Self::Name, Self::Number, Self::Negation, Self::Language];

    pub fn name(self) -> &'static str {
        match self {
            Self::Paraphrase => "paraphrases",
            Self::Name => "names",
            Self::Number => "numbers",
            Self::Negation => "negations",
            Self::Language => "other languages",
        }
    }
}

pub struct Question {
    pub text: String,
    pub kind: Kind,
    /// The memory that answers it.
    pub answer: usize,
}

#[derive(Default)]
pub struct Set {
    pub memories: Vec<String>,
    pub questions: Vec<Question>,
}

impl Set {
    pub fn new() -> Self {
        let mut set = Self::default();
        set.people();
        set.numbers();
        set.negations();
        set.languages();
        set
    }

    fn remember(&mut self, text: String) -> usize {
        self.memories.push(text);
        self.memories.len() - 1
    }

    fn ask(&mut self, kind: Kind, text: String, answer: usize) {
        self.questions.push(Question { text, kind, answer });
    }

    /// Every person with four of five facts; of these every so many are asked for.
    fn people(&mut self) {
        for (person, name) in NAMES.iter().enumerate() {
            for (fact, Fact { says, values, other_words, same_words }) in FACTS.iter().enumerate() {
                if (person * 7 + fact * 3) % 5 == 0 {
                    continue;
                }
                let value = values[(person * 5 + fact * 11) % values.len()];
                let answer = self.remember(says.replace("{n}", name).replace("{v}", value));
                match (person * FACTS.len() + fact) % 41 {
                    3 | 29 => {
                        self.ask(Kind::Paraphrase, other_words.replace("{n}", name), answer);
                    }
                    17 => self.ask(Kind::Name, same_words.replace("{n}", name), answer),
                    _ => {}
                }
            }
        }
    }

    fn numbers(&mut self) {
        for (at, firm) in FIRMS.iter().enumerate() {
            for part in 0..4 {
                let (number, euros) = (20_417 + at * 137 + part * 31, 180 + at * 45 + part * 7);
                let day = 1 + (at * 5 + part * 3) % 28;
                let says = format!(
                    "Invoice {number} from {firm} over {euros} euros is due on the {day}th of March."
                );
                let answer = self.remember(says);
                match (at * 4 + part) % 3 {
                    0 => self.ask(Kind::Number, format!("what is bill no. {number} about"), answer),
                    1 if part == 1 => {
                        let text = format!("who wants {euros} euros from us, was it {firm}?");
                        self.ask(Kind::Number, text, answer);
                    }
                    _ => {}
                }
            }
        }
        for (at, place) in PLACES.iter().enumerate() {
            let code = 1_000 + (at * 7_919) % 9_000;
            let answer = self.remember(format!("The code for the door of the {place} is {code}."));
            match at % 2 {
                0 => self.ask(Kind::Number, format!("which door opens with {code}?"), answer),
                _ => {
                    let text = format!("how do I get into the {place}? I forgot the combination");
                    self.ask(Kind::Number, text, answer);
                }
            }
        }
    }

    fn negations(&mut self) {
        for (at, name) in NAMES.iter().enumerate().step_by(2) {
            let thing = |step: usize| THINGS[(at / 2 + step) % THINGS.len()];
            let (liked, refused) = (thing(0), thing(3));
            self.remember(format!("{name} is very fond of {liked}."));
            let answer = self.remember(format!("{name} does not want any {refused}, not ever."));
            self.ask(Kind::Negation, format!("what does {name} refuse?"), answer);
        }
        for (at, place) in PLACES.iter().enumerate() {
            let other = PLACES[(at + 5) % PLACES.len()];
            self.remember(format!("Dogs are welcome in the {place}."));
            let answer = self.remember(format!("Nobody may smoke in the {other}."));
            if at % 2 == 0 {
                let text = format!("is it forbidden to light a cigarette in the {other}?");
                self.ask(Kind::Negation, text, answer);
            }
        }
    }

    fn languages(&mut self) {
        for (at, name) in NAMES.iter().enumerate().take(20) {
            for (language, (says, values, asks)) in FOREIGN.iter().enumerate() {
                let value = values[(at + language) % values.len()];
                let answer = self.remember(says.replace("{n}", name).replace("{v}", value));
                if (at + language) % 4 == 0 {
                    self.ask(Kind::Language, asks.replace("{n}", name), answer);
                }
            }
        }
    }
}

struct Fact {
    says: &'static str,
    values: &'static [&'static str],
    other_words: &'static str,
    same_words: &'static str,
}

const fn fact(
    says: &'static str,
    values: &'static [&'static str],
    other_words: &'static str,
    same_words: &'static str,
) -> Fact {
    Fact { says, values, other_words, same_words }
}

const NAMES: [&str; 50] = [
    "Priya", "Tomasz", "Ingrid", "Kofi", "Marisol", "Hannah", "Dmitri", "Aiko", "Lukas", "Fatima",
    "Owen", "Beatriz", "Chen", "Saoirse", "Ravi", "Elif", "Jonas", "Nadia", "Mateo", "Greta",
    "Samuel", "Yuki", "Amara", "Viktor", "Leila", "Pedro", "Astrid", "Malik", "Rosa", "Henrik",
    "Zainab", "Callum", "Mei", "Stefan", "Odalys", "Tariq", "Klara", "Bruno", "Sunita", "Emil",
    "Noor", "Gavin", "Paloma", "Idris", "Freya", "Hugo", "Anouk", "Rashid", "Linnea", "Marcus",
];

const FIRMS: [&str; 20] = [
    "Halden Paper",
    "Ostwind Energy",
    "Brightline Couriers",
    "Marlow Print",
    "Tindra Cleaning",
    "Quarry Stone",
    "Nordic Cables",
    "Pinewood Joinery",
    "Saltmarsh Foods",
    "Vega Optics",
    "Kestrel Travel",
    "Bluebell Flowers",
    "Ironbridge Tools",
    "Lantern Studios",
    "Copper Kettle",
    "Foxglove Pharma",
    "Meridian Maps",
    "Harbour Rentals",
    "Silverbirch Legal",
    "Union Bakery",
];

const PLACES: [&str; 20] = [
    "warehouse",
    "boathouse",
    "archive",
    "greenhouse",
    "laundry room",
    "bicycle cellar",
    "chapel",
    "workshop",
    "server room",
    "attic",
    "gym",
    "library",
    "canteen",
    "garage",
    "pump house",
    "music room",
    "wine cellar",
    "sauna",
    "print shop",
    "gatehouse",
];

const THINGS: [&str; 11] = [
    "coffee",
    "garlic",
    "lamb",
    "mushrooms",
    "sparkling water",
    "goat cheese",
    "dill",
    "raisins",
    "white wine",
    "oysters",
    "liquorice",
];

const FOREIGN: [(&str, &[&str], &str); 9] = [
    (
        "{n} arbeitet donnerstags von zu Hause aus, am besten {v}.",
        &["vormittags", "abends", "gar nicht anrufen"],
        "An welchem Tag ist {n} nicht im Büro?",
    ),
    (
        "Der Ersatzschlüssel von {n} liegt {v}.",
        &["unter der Fußmatte", "beim Nachbarn", "in der blauen Dose"],
        "Wie komme ich in die Wohnung von {n}, wenn niemand da ist?",
    ),
    (
        "{n} verträgt keine {v}.",
        &["Milch", "Erdnüsse", "Äpfel"],
        "Worauf muss ich beim Kochen für {n} achten?",
    ),
    (
        "{n} préfère voyager {v} pendant les vacances.",
        &["en train", "en voiture", "à vélo"],
        "Comment {n} part-il en congé ?",
    ),
    (
        "La sœur de {n} habite à {v}.",
        &["Lyon", "Nantes", "Genève"],
        "Dans quelle ville vit la famille de {n} ?",
    ),
    (
        "{n} n'aime pas qu'on l'appelle {v}.",
        &["le matin", "le dimanche", "après vingt heures"],
        "Quand faut-il éviter de téléphoner à {n} ?",
    ),
    (
        "El coche de {n} es {v}.",
        &["rojo y muy viejo", "eléctrico", "prestado"],
        "¿Qué vehículo conduce {n}?",
    ),
    (
        "{n} estudia {v} por las noches.",
        &["derecho", "japonés", "contabilidad"],
        "¿Qué aprende {n} después del trabajo?",
    ),
    (
        "{n} quiere mudarse a {v} el año que viene.",
        &["Sevilla", "Lima", "la costa"],
        "¿Dónde piensa vivir {n} pronto?",
    ),
];

const FACTS: [Fact; 50] = [
    fact(
        "{n} is allergic to {v}.",
        &["peanuts", "shellfish", "penicillin", "cat hair", "bee stings"],
        "what could make {n} ill?",
        "{n} allergic",
    ),
    fact(
        "{n} prefers {v} in the morning.",
        &["black tea", "a flat white", "hot water with lemon", "orange juice"],
        "which drink should I bring {n} at breakfast?",
        "what does {n} prefer in the morning",
    ),
    fact(
        "{n}'s birthday is on {v}.",
        &["the 4th of May", "the 19th of October", "New Year's Eve", "the 30th of June"],
        "when was {n} born?",
        "{n}'s birthday",
    ),
    fact(
        "{n} moved to {v} last spring.",
        &["Lisbon", "Gothenburg", "a farm near Graz", "Montreal"],
        "where does {n} live now?",
        "where {n} moved to",
    ),
    fact(
        "{n} drives {v}.",
        &["an old Volvo", "a delivery van", "a motorcycle with a sidecar", "a leased Tesla"],
        "what kind of vehicle does {n} have?",
        "what {n} drives",
    ),
    fact(
        "{n} is married to {v}.",
        &["a dentist", "her school friend", "an airline pilot", "a potter"],
        "who is {n}'s spouse?",
        "who is {n} married to",
    ),
    fact(
        "{n} has {v}.",
        &["three sons", "twin daughters", "an adopted child", "no children"],
        "tell me about {n}'s kids",
        "how many sons or daughters has {n}",
    ),
    fact(
        "{n} works as {v}.",
        &[
            "a structural engineer",
            "a nurse on night shifts",
            "a tax adviser",
            "a sound technician",
        ],
        "what is {n}'s profession?",
        "what {n} works as",
    ),
    fact(
        "{n} is learning {v}.",
        &["Portuguese", "to play the cello", "to weld", "Rust"],
        "which new skill is {n} picking up?",
        "what is {n} learning",
    ),
    fact(
        "{n} is afraid of {v}.",
        &["flying", "spiders", "deep water", "lifts"],
        "what scares {n}?",
        "{n} afraid",
    ),
    fact(
        "{n} runs {v}.",
        &["ten kilometres every Sunday", "marathons", "before sunrise", "only on treadmills"],
        "how does {n} keep fit?",
        "how far {n} runs",
    ),
    fact(
        "{n} broke {v} in January.",
        &["a wrist", "the left ankle", "two ribs", "a collarbone"],
        "what injury did {n} have?",
        "what {n} broke in January",
    ),
    fact(
        "{n} keeps {v}.",
        &["two greyhounds", "a parrot", "bees", "a tortoise called Plato"],
        "does {n} have any pets?",
        "which animals {n} keeps",
    ),
    fact(
        "{n} plays {v} in a band.",
        &["bass", "drums", "the trumpet", "keyboards"],
        "which instrument does {n} perform with?",
        "what {n} plays in the band",
    ),
    fact(
        "{n} votes against {v}.",
        &["the new stadium", "the merger", "longer opening hours", "the bypass"],
        "which project is {n} opposed to?",
        "what {n} votes against",
    ),
    fact(
        "{n}'s laptop is {v}.",
        &["a ThinkPad with a broken key", "a borrowed MacBook", "waiting for repair", "brand new"],
        "what computer does {n} use?",
        "{n}'s laptop",
    ),
    fact(
        "{n} wants meetings to end {v}.",
        &["by noon", "after thirty minutes", "before the school run", "with a written summary"],
        "how should I schedule calls with {n}?",
        "when does {n} want meetings to end",
    ),
    fact(
        "{n}'s flight leaves {v}.",
        &["at 6:40 from gate B", "on Tuesday night", "from Terminal 2", "with a stop in Doha"],
        "when does {n} depart by plane?",
        "{n}'s flight leaves",
    ),
    fact(
        "{n} stays at {v} when in town.",
        &["the Hotel Astoria", "her cousin's flat", "the hostel by the canal", "a guest house"],
        "where does {n} sleep on visits?",
        "where {n} stays in town",
    ),
    fact(
        "{n} collects {v}.",
        &["vinyl records", "enamel signs", "first editions", "tin robots"],
        "what would be a good addition to {n}'s hobby?",
        "what {n} collects",
    ),
    fact(
        "{n} writes code in {v}.",
        &["Haskell", "Go", "COBOL", "Kotlin"],
        "which programming language does {n} use?",
        "what {n} writes code in",
    ),
    fact(
        "{n}'s manager is {v}.",
        &["on parental leave", "Mr Okafor", "based in Singapore", "retiring in autumn"],
        "who is {n}'s boss?",
        "{n}'s manager",
    ),
    fact(
        "{n} reads {v} before sleeping.",
        &["crime novels", "poetry", "the financial news", "cookbooks"],
        "what kind of books does {n} enjoy at night?",
        "what {n} reads before sleeping",
    ),
    fact(
        "{n} owes me {v}.",
        &["forty euros", "a favour", "a bottle of wine", "an apology"],
        "what do I still have to get back from {n}?",
        "what {n} owes me",
    ),
    fact(
        "{n} recommended {v}.",
        &["the noodle bar on Mill Street", "a podcast on bridges", "a plumber", "the coast path"],
        "what tip did {n} give me?",
        "what {n} recommended",
    ),
    fact(
        "{n} wears shoes in size {v}.",
        &["38", "41", "44", "46"],
        "how large are {n}'s feet?",
        "{n} size of shoes",
    ),
    fact(
        "{n} grew up in {v}.",
        &["a lighthouse", "Nairobi", "a village without a road", "the suburbs of Lille"],
        "where did {n} spend childhood?",
        "where {n} grew up",
    ),
    fact(
        "{n} supports {v}.",
        &["a second-division football club", "Ajax", "the local ice hockey team", "Celtic"],
        "which team does {n} cheer for?",
        "whom {n} supports",
    ),
    fact(
        "{n}'s mother is {v}.",
        &["in hospital", "a retired judge", "visiting in August", "ninety years old"],
        "how is {n}'s mum?",
        "{n}'s mother",
    ),
    fact(
        "{n} is on {v}.",
        &["a gluten-free diet", "a keto diet", "blood thinners", "antibiotics until Friday"],
        "does {n} follow any medical or dietary regime?",
        "what diet or pills {n} is on",
    ),
    fact(
        "{n} cancelled {v}.",
        &["the gym membership", "the newspaper", "the dinner on Friday", "the holiday in Crete"],
        "what did {n} call off?",
        "what {n} cancelled",
    ),
    fact(
        "{n} is saving for {v}.",
        &["a sailing boat", "a deposit on a house", "a trip to Patagonia", "new windows"],
        "what is {n} putting money aside for?",
        "what {n} is saving for",
    ),
    fact(
        "{n} signs emails with {v}.",
        &["Cheers", "a quotation", "initials only", "Yours faithfully"],
        "how does {n} close letters?",
        "how {n} signs emails",
    ),
    fact(
        "{n}'s phone is switched off {v}.",
        &["at weekends", "after nine", "during surgery", "on the train"],
        "when can I not reach {n} by calling?",
        "{n}'s phone switched off",
    ),
    fact(
        "{n} paints {v}.",
        &["watercolours of harbours", "portraits", "model railways", "the fence every summer"],
        "what sort of art does {n} make?",
        "what {n} paints",
    ),
    fact(
        "{n} quit {v}.",
        &["smoking", "the board", "social media", "the choir"],
        "what has {n} given up?",
        "what {n} quit",
    ),
    fact(
        "{n} lent me {v}.",
        &["a tent", "a drill", "a grammar of Latin", "the spare projector"],
        "what must I return to {n}?",
        "what {n} lent me",
    ),
    fact(
        "{n} hates {v}.",
        &["loud music", "surprises", "spreadsheets", "the smell of paint"],
        "what annoys {n} most?",
        "what {n} hates",
    ),
    fact(
        "{n} is training for {v}.",
        &["a triathlon", "the fire brigade", "a chess title", "the bar exam"],
        "which challenge is {n} preparing for?",
        "what {n} is training for",
    ),
    fact(
        "{n} lost {v} on the tram.",
        &["a wallet", "a violin", "the office keys", "one glove"],
        "what went missing from {n} on public transport?",
        "what {n} lost on the tram",
    ),
    fact(
        "{n} teaches {v} on Wednesdays.",
        &["yoga", "bookkeeping", "physics", "sign language"],
        "which class does {n} give in the middle of the week?",
        "what {n} teaches on Wednesdays",
    ),
    fact(
        "{n} translated {v}.",
        &["a Finnish thriller", "the manual", "the contract", "a film script"],
        "which text did {n} put into another language?",
        "what {n} translated",
    ),
    fact(
        "{n} pays rent {v}.",
        &["in cash", "on the third of the month", "to an aunt", "twice a year"],
        "how does {n} settle up with the landlord?",
        "how {n} pays rent",
    ),
    fact(
        "{n} cannot see well {v}.",
        &["without glasses", "in the dark", "on the left side", "since the operation"],
        "does {n} have trouble with eyesight?",
        "{n} cannot see well",
    ),
    fact(
        "{n} volunteers at {v}.",
        &["the food bank", "a hospice", "the animal shelter", "the repair café"],
        "which charity does {n} help?",
        "where {n} volunteers",
    ),
    fact(
        "{n} is writing {v}.",
        &["a thesis on moss", "a cookbook", "a will", "an opera"],
        "what document is {n} the author of?",
        "what {n} is writing",
    ),
    fact(
        "{n}'s garden is full of {v}.",
        &["slugs", "roses", "old tyres", "tomatoes"],
        "what grows or lies around outside {n}'s house?",
        "{n}'s garden",
    ),
    fact(
        "{n} bought {v} at the auction.",
        &["a grandfather clock", "a rowing machine", "six chairs", "a painting of a horse"],
        "what did {n} win with the highest bid?",
        "what {n} bought at the auction",
    ),
    fact(
        "{n} reports to the office {v}.",
        &["once a month", "every other day", "only for workshops", "from Monday to Wednesday"],
        "how often is {n} on site?",
        "when {n} reports to the office",
    ),
    fact(
        "{n} wants to be reminded about {v}.",
        &["the dentist", "the tax return", "watering the plants", "the anniversary"],
        "what should I tell {n} not to forget?",
        "what {n} wants to be reminded about",
    ),
];
