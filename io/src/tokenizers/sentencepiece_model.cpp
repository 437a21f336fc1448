#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <heddle/core/base/error.hpp>
#include <heddle/io/tokenizers/sentencepiece_model.hpp>
#include <map>
#include <unordered_map>

#include "tokenizer_steps/character_map.hpp"

namespace heddle {
namespace {

using Type = SentencePiece::Type;

// Protocol Buffers: a field is a number (its tag: field number and wire type), then its value.
enum Wire : std::uint32_t { as_varint = 0, as_fixed64 = 1, as_bytes = 2, as_fixed32 = 5 };

// Field numbers of sentencepiece_model.proto.
enum ModelField : std::uint32_t {
  model_piece = 1,
  model_trainer = 2,
  model_normalizer = 3,
  model_denormalizer = 5,
  model_text_form = 26724  // from 200 on: ours
};
enum NormalizerField : std::uint32_t { character_map = 2, adds_space = 3, removes_spaces = 4 };
enum PieceField : std::uint32_t { piece_text = 1, piece_score = 2, piece_type = 3 };
enum TrainerField : std::uint32_t {
  model_type = 3,
  unknown_id = 40,
  begin_id = 41,
  end_id = 42,
  padding_id = 43,
  unknown_piece = 45,
  begin_piece = 46,
  end_piece = 47,
  padding_piece = 48
};
constexpr std::uint64_t bpe_type = 2;

[[noreturn]] void refuse(std::string const& problem) {
  throw DataError("this is not a SentencePiece model: " + problem);
}

/// A field of a message. Its bytes are those of the message.
struct Field {
  std::uint32_t number = 0;
  std::uint32_t wire = 0;
  std::uint64_t value = 0;   ///< of a number
  std::string_view payload;  ///< of text, bytes and messages
  std::string_view whole;    ///< with its tag

  void require(Wire expected) const {
    if (wire != expected) {
      refuse(fmt::format("field {} has wire type {}, not {}", number, wire, static_cast<int>(expected)));
    }
  }
  std::string_view message() const {
    require(as_bytes);
    return payload;
  }
  std::uint64_t of_wire(Wire expected) const {
    require(expected);
    return value;
  }
};

/// Removes the first `count` bytes of `rest` and returns them.
std::string_view take(std::string_view& rest, std::uint64_t count) {
  if (count > rest.size()) {
    refuse(fmt::format("a field has {} bytes where {} are left", count, rest.size()));
  }
  auto const taken = rest.substr(0, count);
  rest.remove_prefix(count);
  return taken;
}

std::uint64_t take_varint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    auto const byte = static_cast<unsigned char>(take(rest, 1).front());
    if (shift == 63 && byte > 1) {
      break;
    }
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) {
      return value;
    }
  }
  refuse("a number has more than 64 bits");
}

std::uint64_t take_fixed(std::string_view& rest, unsigned count) {
  std::uint64_t value = 0;
  unsigned shift = 0;
  for (char const byte : take(rest, count)) {
    value |= std::uint64_t{static_cast<unsigned char>(byte)} << shift;
    shift += 8;
  }
  return value;
}

/// Calls `visit(Field)` for each field of a message, in its order.
template <class Visit>
void for_each_field(std::string_view message, Visit const& visit) {
  while (!message.empty()) {
    std::string_view const start = message;
    std::uint64_t const tag = take_varint(message);
    if (tag >> 3U == 0 || tag >> 32U != 0) {
      refuse(fmt::format("a field has the tag {}", tag));
    }
    Field field{static_cast<std::uint32_t>(tag >> 3U), static_cast<std::uint32_t>(tag & 7U), 0, {}, {}};
    switch (field.wire) {
      case as_varint:
        field.value = take_varint(message);
        break;
      case as_fixed64:
        field.value = take_fixed(message, 8);
        break;
      case as_fixed32:
        field.value = take_fixed(message, 4);
        break;
      case as_bytes:
        field.payload = take(message, take_varint(message));
        break;
      default:
        refuse(fmt::format("field {} has wire type {}", field.number, field.wire));
    }
    field.whole = start.substr(0, start.size() - message.size());
    visit(field);
  }
}

/// The last field of each number.
std::map<std::uint32_t, Field> fields_of(std::string_view message) {
  std::map<std::uint32_t, Field> fields;
  for_each_field(message, [&](Field const& field) { fields[field.number] = field; });
  return fields;
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U) {
    out += static_cast<char>(value | 0x80U);
  }
  out += static_cast<char>(value);
}

void put_tag(std::string& out, std::uint32_t number, Wire wire) {
  put_varint(out, (std::uint64_t{number} << 3U) | wire);
}

void put_bytes(std::string& out, std::uint32_t number, std::string_view payload) {
  put_tag(out, number, as_bytes);
  put_varint(out, payload.size());
  out += payload;
}

void put_number(std::string& out, std::uint32_t number, std::uint64_t value) {
  put_tag(out, number, as_varint);
  put_varint(out, value);
}

SentencePiece parse_piece(std::string_view message) {
  SentencePiece piece;
  for_each_field(message, [&](Field const& field) {
    if (field.number == piece_text) {
      piece.text = field.message();
    } else if (field.number == piece_score) {
      piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.of_wire(as_fixed32)));
    } else if (field.number == piece_type) {
      std::uint64_t const type = field.of_wire(as_varint);
      if (type < 1 || type > 6) {
        refuse(fmt::format("a piece has the type {}", type));
      }
      piece.type = static_cast<Type>(type);
    } else {
      piece.extensions += field.whole;
    }
  });
  if (piece.text.empty() || !std::isfinite(piece.score)) {
    refuse(fmt::format("the piece \"{}\" is empty or has a score that is not a number", piece.text));
  }
  return piece;
}

std::string serialize_piece(SentencePiece const& piece) {
  std::string out;
  put_bytes(out, piece_text, piece.text);
  put_tag(out, piece_score, as_fixed32);
  auto const score = std::bit_cast<std::uint32_t>(piece.score);
  for (unsigned shift = 0; shift < 32; shift += 8) {
    out += static_cast<char>(score >> shift);
  }
  if (piece.type != Type::normal) {
    put_number(out, piece_type, static_cast<std::uint64_t>(piece.type));
  }
  return out + piece.extensions;
}

/// The message with `fields` (number → whole field) in place of its own fields of these numbers.
std::string with_fields(std::string_view message, std::map<std::uint32_t, std::string> const& fields) {
  std::multimap<std::uint32_t, std::string> all(fields.begin(), fields.end());
  for_each_field(message, [&](Field const& field) {
    if (!fields.contains(field.number)) {
      all.emplace(field.number, field.whole);
    }
  });
  std::string out;
  for (auto const& [number, whole] : all) {
    out += whole;
  }
  return out;
}

/// Such a piece may change how a text is segmented. BPE merges through unused pieces and splits them again.
bool segments(SentencePiece const& piece, bool bpe) {
  return piece.type == Type::normal || piece.type == Type::user_defined || piece.type == Type::byte ||
         (bpe && piece.type == Type::unused);
}

/// SentencePiece finds pieces of these types and all others in two tables, so that one text may be in both.
bool ordinary(SentencePiece const& piece) {
  return piece.type == Type::normal || piece.type == Type::user_defined || piece.type == Type::unused;
}

/// The pieces' indices by their text: of the ordinary ones, or of the others. Throws DataError for two of one text.
std::unordered_map<std::string_view, std::size_t> indices(std::vector<SentencePiece> const& pieces, bool of_ordinary) {
  std::unordered_map<std::string_view, std::size_t> found;
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    if (ordinary(pieces[id]) == of_ordinary) {
      if (auto const [place, added] = found.emplace(pieces[id].text, id); !added) {
        throw DataError("the piece \"{}\" has two ids: {} and {}", pieces[id].text, place->second, id);
      }
    }
  }
  return found;
}

/// Throws DataError if `pieces` segment a text otherwise than `old` ones.
void require_same_segmentation(std::vector<SentencePiece> const& old, std::vector<SentencePiece> const& pieces,
                               bool bpe) {
  for (bool const of_ordinary : {true, false}) {
    auto const before = indices(old, of_ordinary);
    auto const now = indices(pieces, of_ordinary);
    auto const same = [&](SentencePiece const& piece, auto const& others, auto const& those) {
      auto const place = others.find(piece.text);
      return place != others.end() && those[place->second].type == piece.type &&
             those[place->second].score == piece.score;
    };
    for (auto const& [text, index] : before) {
      if (segments(old[index], bpe) && !same(old[index], now, pieces)) {
        throw DataError("the SentencePiece model's piece \"{}\" has no id, another type or another score", text);
      }
    }
    for (auto const& [text, id] : now) {
      if (segments(pieces[id], bpe) && !same(pieces[id], before, old)) {
        throw DataError("id {}: the SentencePiece model has no piece \"{}\" of this type", id, text);
      }
    }
  }
}

}  // namespace

void require_sound_normalizers(std::string_view bytes) {
  for_each_field(bytes, [](Field const& field) {
    if (field.number == model_normalizer || field.number == model_denormalizer) {
      for_each_field(field.message(), [](Field const& part) {
        if (part.number == character_map) {
          CharacterMap::require_sound(part.message());
        }
      });
    }
  });
}

SentencePieceModel SentencePieceModel::parse(std::string_view bytes) {
  SentencePieceModel model;
  for_each_field(bytes, [&](Field const& field) {
    if (field.number == model_piece) {
      model.pieces.push_back(parse_piece(field.message()));
    } else if (field.number == model_trainer) {
      model.trainer_ += field.message();  // a message that comes twice is one with the fields of both
    } else if (field.number == model_text_form) {
      model.text_form = field.message();
    } else {
      model.rest_ += field.whole;
    }
  });
  if (model.pieces.empty()) {
    refuse("it has no pieces");
  }
  for_each_field(model.trainer_, [](Field const&) {});
  return model;
}

std::string SentencePieceModel::serialize() const {
  std::string out;
  for (SentencePiece const& piece : pieces) {
    put_bytes(out, model_piece, serialize_piece(piece));
  }
  if (!trainer_.empty()) {
    put_bytes(out, model_trainer, trainer_);
  }
  out += rest_;
  if (!text_form.empty()) {
    put_bytes(out, model_text_form, text_form);
  }
  return out;
}

std::string_view text_form_of_model(std::string_view bytes) {
  std::string_view found;
  for_each_field(bytes, [&](Field const& field) { found = field.number == model_text_form ? field.message() : found; });
  return found;
}

SpecialPieces SentencePieceModel::special() const {
  auto const fields = fields_of(trainer_);
  auto const name = [&](TrainerField number, char const* absent) {
    auto const found = fields.find(number);
    std::string_view const given = found == fields.end() ? "" : found->second.message();
    return std::string(given.empty() ? absent : given);
  };
  return {name(begin_piece, "<s>"), name(end_piece, "</s>"), name(unknown_piece, "<unk>"),
          name(padding_piece, "<pad>")};
}

bool SentencePieceModel::bpe() const {
  auto const fields = fields_of(trainer_);
  auto const type = fields.find(model_type);
  return type != fields.end() && type->second.of_wire(as_varint) == bpe_type;
}

SentencePieceModel::Normalizer SentencePieceModel::normalizer() const {
  Normalizer found;
  for_each_field(rest_, [&](Field const& field) {
    if (field.number != model_normalizer) {
      return;
    }
    for_each_field(field.message(), [&](Field const& part) {
      if (part.number == character_map) {
        found.character_map = part.message();
      } else if (part.number == adds_space) {
        found.adds_space = part.of_wire(as_varint) != 0;
      } else if (part.number == removes_spaces) {
        found.removes_spaces = part.of_wire(as_varint) != 0;
      }
    });
  });
  return found;
}

std::string serialize_with_ids(SentencePieceModel model, std::vector<SentencePiece> pieces,
                               SpecialPieces const& special) {
  require_same_segmentation(model.pieces, pieces, model.bpe());
  auto const others = indices(pieces, false);
  std::map<std::uint32_t, std::string> fields;
  auto const set = [&](std::string const& text, Type type, TrainerField id_field, TrainerField piece_field) {
    auto const place = others.find(text);
    bool const found = place != others.end() && pieces[place->second].type == type;
    if (!found && !(text.empty() && id_field == padding_id)) {
      throw DataError("the vocabulary has no special piece \"{}\"", text);
    }
    // SentencePiece writes -1 for none, which takes 64 bits.
    put_number(fields[id_field], id_field, found ? place->second : ~std::uint64_t{0});
    put_bytes(fields[piece_field], piece_field, text);
  };
  set(special.unknown, Type::unknown, unknown_id, unknown_piece);
  set(special.begin, Type::control, begin_id, begin_piece);
  set(special.end, Type::control, end_id, end_piece);
  set(special.padding, Type::control, padding_id, padding_piece);
  if (std::ranges::count(pieces, Type::unknown, &SentencePiece::type) != 1) {
    throw DataError("the vocabulary has more than one unknown piece, not only \"{}\"", special.unknown);
  }
  model.trainer_ = with_fields(model.trainer_, fields);
  model.pieces = std::move(pieces);
  return model.serialize();
}

}  // namespace heddle
