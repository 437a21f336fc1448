#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <heddle/core/base/error.hpp>
#include <heddle/io/text/bounded_json.hpp>
#include <heddle/io/tokenizers/text_form.hpp>
#include <heddle/io/tokenizers/tokenizer.hpp>

namespace heddle {
namespace {

namespace json = boost::json;
using Ids = std::vector<std::int32_t>;

constexpr std::size_t max_suppressed = 10'000;  // each step ranks as many tokens more

std::string_view bare(std::string_view language) {
  for (auto const& [before, after] : {std::pair<std::string_view, std::string_view>("__", "__"), {">>", "<<"}}) {
    if (language.size() > before.size() + after.size() && language.starts_with(before) && language.ends_with(after)) {
      return language.substr(before.size(), language.size() - before.size() - after.size());
    }
  }
  return language;
}

json::object to_value(TextForm::Side const& side) {
  return {{"language", std::string(name_of(side.language))},
          {"default_language", side.default_language},
          {"prefix", json::value_from(side.prefix)}};
}

/// Reads forms of a vocabulary of `size` tokens.
struct FormReader {
  std::int32_t size;

  std::int32_t id(json::value const& value) const {
    auto const id = value.as_int64();
    if (id < 0 || id >= size) {
      throw DataError("the id {} is outside the vocabulary's 0 to {}", id, size - 1);
    }
    return static_cast<std::int32_t>(id);
  }
  Ids ids(json::value const& values) const {
    Ids ids;
    for (json::value const& value : values.as_array()) {
      ids.push_back(id(value));
    }
    return ids;
  }
  TextForm::Side side(json::value const& value) const {
    TextForm::Side side{.prefix = ids(value.at("prefix"))};
    auto const& names = value_names<LanguagePosition>;
    auto const place = std::ranges::find(names, json::value_to<std::string>(value.at("language")));
    if (place == names.end()) {
      throw DataError("it names an unknown place of languages");
    }
    side.language = static_cast<LanguagePosition>(place - names.begin());
    if (value.at("default_language") != json::value(SpecialIds::absent)) {
      side.default_language = id(value.at("default_language"));
    }
    return side;
  }
};

std::string names_of(Tokenizer const& tokenizer) {
  std::vector<std::string> names;
  for (std::int32_t const id : tokenizer.form().languages) {
    names.push_back(tokenizer.piece(id));
  }
  std::ranges::sort(names);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Prepends the token of a language to `tokens`: `absent` for an empty name. `option` is the option that gave the name.
void put_language(Ids& tokens, Tokenizer const& tokenizer, std::string const& name, std::int32_t absent,
                  char const* option) {
  Ids const& languages = tokenizer.form().languages;
  auto const found = std::ranges::find_if(languages, [&](std::int32_t id) {
    std::string const piece = tokenizer.piece(id);
    return name.empty() ? id == absent : piece == name || bare(piece) == name;
  });
  if (found == languages.end()) {
    throw UsageError("{} is {}; the vocabulary's languages are: {}", option,
                     name.empty() ? "missing" : fmt::format("\"{}\"", name), names_of(tokenizer));
  }
  tokens.insert(tokens.begin(), *found);
}

void require_none(std::string const& name, char const* option) {
  if (!name.empty()) {
    throw UsageError("{} is \"{}\", but the vocabulary has no tokens for the languages of this side", option, name);
  }
}

}  // namespace

bool is_language(std::string const& text) {
  auto const is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  auto const is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  auto const is_letter = [&](char c) { return is_lower(c) || is_upper(c); };
  std::string_view const all = text;
  if (all.size() > 4 && (all.starts_with(">>") || all.starts_with("__"))) {
    std::string_view const inner = all.substr(2, all.size() - 4);
    return all.starts_with("__") ? all.ends_with("__") && std::ranges::all_of(inner, is_lower)
                                 : all.ends_with("<<") && inner.find_first_of("\n\r") == std::string_view::npos;
  }
  std::size_t const gap = all.find('_');
  if (gap != 2 && gap != 3) {
    return false;
  }
  std::string_view const script = all.substr(gap + 1);  // "XX" or "Latn"
  return std::ranges::all_of(all.substr(0, gap), is_lower) && script.size() >= 2 && script.size() <= 4 &&
         is_upper(script.front()) && std::ranges::all_of(script, is_letter);
}

std::string to_json(TextForm const& form) {
  json::object object{{"source", to_value(form.source)},
                      {"target", to_value(form.target)},
                      {"languages", json::value_from(form.languages)},
                      {"forced", json::value_from(form.forced)},
                      {"suppressed", json::value_from(form.suppressed)},
                      {"suppressed_first", json::value_from(form.suppressed_first)}};
  if (!form.ends.empty()) {
    object["ends"] = json::value_from(form.ends);
  }
  if (form.start != SpecialIds::absent) {
    object["start"] = form.start;
  }
  return json::serialize(object);
}

TextForm parse_text_form(std::string_view text, std::int32_t size) {
  constexpr char const* what = "the vocabulary's form of texts cannot be used";
  json::value const value = parse_bounded_json(text, what);
  FormReader const reader{size};
  try {
    TextForm form{.source = reader.side(value.at("source")),
                  .target = reader.side(value.at("target")),
                  .languages = reader.ids(value.at("languages")),
                  .forced = reader.ids(value.at("forced"))};
    for (json::value const& sequence : value.at("suppressed").as_array()) {
      form.suppressed.push_back(reader.ids(sequence));
    }
    form.suppressed_first = reader.ids(value.at("suppressed_first"));
    if (json::value const* const ends = value.as_object().if_contains("ends")) {
      form.ends = reader.ids(*ends);
    }
    if (json::value const* const start = value.as_object().if_contains("start")) {
      form.start = reader.id(*start);
    }
    if (form.suppressed.size() + form.suppressed_first.size() > max_suppressed) {
      throw DataError("it suppresses more than {} sequences of tokens", max_suppressed);
    }
    return form;
  } catch (std::bad_alloc const&) {
    throw;
  } catch (std::exception const& error) {
    throw DataError("{}: {}", what, error.what());
  }
}

TextFrame frame_of(Vocabulary const& vocabulary, Languages const& languages, LanguageOptions const& options) {
  TextForm::Side const& source = vocabulary.source.form().source;
  TextForm::Side const& target = vocabulary.target.form().target;
  bool const of_target = source.language == LanguagePosition::of_target;
  TextFrame frame{.source = source.prefix, .target = target.prefix};
  if (source.language == LanguagePosition::none || of_target) {
    require_none(languages.source, options.source);
  } else {
    put_language(frame.source, vocabulary.source, languages.source, source.default_language, options.source);
  }
  if (of_target) {
    put_language(frame.source, vocabulary.source, languages.target, source.default_language, options.target);
  } else if (target.language == LanguagePosition::none) {
    require_none(languages.target, options.target);
  } else {
    put_language(frame.target, vocabulary.target, languages.target, target.default_language, options.target);
  }
  frame.start = start_of(vocabulary, frame.target);
  return frame;
}

std::vector<std::int32_t> start_of(Vocabulary const& vocabulary, std::vector<std::int32_t> const& target) {
  TextForm const& form = vocabulary.target.form();
  std::int32_t const begin = vocabulary.target.special_ids().begin;
  bool const named = !target.empty() && std::ranges::find(form.languages, target.front()) != form.languages.end();
  if (named && form.target.language == LanguagePosition::last) {
    return {target.front()};
  }
  if (named && form.target.language == LanguagePosition::first) {
    return {begin, target.front()};
  }
  Ids start{begin};
  start.insert(start.end(), form.forced.begin(), form.forced.end());
  return start;
}

GenerationLimits limits_of(Vocabulary const& vocabulary) {
  TextForm const& form = vocabulary.target.form();
  GenerationLimits limits{form.suppressed, form.suppressed_first, form.ends};
  SpecialIds const ids = vocabulary.special_ids_outside_texts().target;
  for (std::int32_t const id : {ids.padding, ids.begin, ids.mask}) {
    bool const ends = id == ids.end || std::ranges::find(form.ends, id) != form.ends.end();
    bool const known = std::ranges::find(limits.suppressed, Ids{id}) != limits.suppressed.end();
    if (id != SpecialIds::absent && !ends && !known) {
      limits.suppressed.push_back({id});
    }
  }
  return limits;
}

}  // namespace heddle
