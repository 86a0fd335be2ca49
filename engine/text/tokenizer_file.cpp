// See tokenizer_file.h. Second step: the small tree becomes settings, and whatever would change ids
// in a way that Terrace does not know is refused by name.
#include "engine/text/tokenizer_file.h"

#include <new>
#include <utility>

#include "engine/text/tokenizer_file_sax.h"
#include "engine/text/utf8.h"

namespace terrace {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxSteps = 64;

Error corrupt(const std::string& message) {
    return {ErrorCode::Corrupt, message, "", "Download the file again from its publisher"};
}

Error unsupported(const std::string& message) {
    return {ErrorCode::Unsupported, message, "", "This model cannot be used with this version"};
}

/// A member, or null if there is none; `of` may be anything.
const Json& member(const Json& of, const char* key) {
    static const Json none;
    if (!of.is_object()) {
        return none;
    }
    const auto found = of.find(key);
    return found == of.end() ? none : *found;
}

/// A text member, or `otherwise` if it is absent or no text.
std::string text_of(const Json& of, const char* key, const std::string& otherwise = "") {
    const Json& value = member(of, key);
    return value.is_string() ? value.get<std::string>() : otherwise;
}

/// The "type" of a part, or what it is if it has none, for messages.
std::string type_of(const Json& part) {
    const Json& type = member(part, "type");
    return type.is_string() ? quoted_excerpt(type.get_ref<const std::string&>())
                            : part.dump(-1, ' ', true).substr(0, 60);
}

enum class Presence { Absent, Off, On };

Presence flag_of(const Json& of, const char* key) {
    const Json& value = member(of, key);
    if (!value.is_boolean()) {
        return Presence::Absent;
    }
    return value.get<bool>() ? Presence::On : Presence::Off;
}

AddedToken::Flag added_flag(const Json& of, const char* key, AddedToken::Flag otherwise) {
    const Presence flag = flag_of(of, key);
    if (flag == Presence::Absent) {
        return otherwise;
    }
    return flag == Presence::On ? AddedToken::Flag::Yes : AddedToken::Flag::No;
}

/// The steps inside a Sequence, or the one step that stands there instead of a Sequence.
Result<std::vector<const Json*>> steps_of(const Json& part, const char* list_key) {
    std::vector<const Json*> out;
    if (part.is_null()) {
        return out;
    }
    if (text_of(part, "type") != "Sequence") {
        out.push_back(&part);
        return out;
    }
    const Json& list = member(part, list_key);
    if (!list.is_array() || list.size() > kMaxSteps) {
        return corrupt(std::string("expected a list of at most ") + std::to_string(kMaxSteps) +
                       " \"" + list_key + "\" in a Sequence, found " +
                       list.dump(-1, ' ', true).substr(0, 60));
    }
    for (const Json& step : list) {
        Result<std::vector<const Json*>> inner = steps_of(step, list_key);
        if (!inner.ok()) {
            return inner;
        }
        out.insert(out.end(), inner->begin(), inner->end());
        if (out.size() > kMaxSteps) {
            return corrupt(std::string("expected at most ") + std::to_string(kMaxSteps) + " \"" +
                           list_key + "\", found more");
        }
    }
    return out;
}

Status read_normaliser(const Json& tree, TokenizerFile& out) {
    const auto steps = steps_of(member(tree, "normalizer"), "normalizers");
    if (!steps.ok()) {
        return steps.error();
    }
    for (const Json* step : *steps) {
        if (text_of(*step, "type") != "NFC") {
            return unsupported("expected the normalizer NFC or none, found " + type_of(*step));
        }
        out.normaliser = TokenizerFile::Normaliser::Nfc;
    }
    return {};
}

Result<PreTokenizerStep> read_split(const Json& step) {
    using Behaviour = PreTokenizerStep::Behaviour;
    PreTokenizerStep out;
    const Json& pattern = member(step, "pattern");
    const Json& regex = member(pattern, "Regex");
    const Json& literal = member(pattern, "String");
    if (regex.is_string()) {
        out.pattern = regex.get<std::string>();
    } else if (literal.is_string()) {
        out.pattern = literal.get<std::string>();
        out.pattern_kind = PreTokenizerStep::PatternKind::Literal;
    } else {
        return corrupt("expected a Split with a pattern \"Regex\" or \"String\", found " +
                       pattern.dump(-1, ' ', true).substr(0, 60));
    }
    const std::pair<const char*, Behaviour> kBehaviours[] = {
        {"Removed", Behaviour::Removed},
        {"Isolated", Behaviour::Isolated},
        {"MergedWithPrevious", Behaviour::MergedWithPrevious},
        {"MergedWithNext", Behaviour::MergedWithNext},
        {"Contiguous", Behaviour::Contiguous}};
    const std::string behaviour = text_of(step, "behavior", "none");
    for (const auto& [name, value] : kBehaviours) {
        if (behaviour == name) {
            out.behaviour = value;
            if (flag_of(step, "invert") == Presence::On) {
                out.invert = PreTokenizerStep::Invert::Yes;
            }
            return out;
        }
    }
    return unsupported("expected a Split with a known behavior, found " +
                       quoted_excerpt(behaviour));
}

void add_byte_level(const Json& step, std::vector<PreTokenizerStep>& out) {
    PreTokenizerStep byte_level;
    byte_level.kind = PreTokenizerStep::Kind::ByteLevel;
    // Absent means on, in the published library, for both settings.
    if (flag_of(step, "add_prefix_space") != Presence::Off) {
        byte_level.prefix_space = PreTokenizerStep::PrefixSpace::Yes;
    }
    out.push_back(byte_level);
    if (flag_of(step, "use_regex") != Presence::Off) {
        PreTokenizerStep split;
        split.pattern = byte_level_pattern();
        out.push_back(split);
    }
}

Status read_pre_tokenizer(const Json& tree, TokenizerFile& out) {
    const auto steps = steps_of(member(tree, "pre_tokenizer"), "pretokenizers");
    if (!steps.ok()) {
        return steps.error();
    }
    bool is_byte_level = false;
    for (const Json* step : *steps) {
        const std::string type = text_of(*step, "type");
        if (is_byte_level) {
            return unsupported("expected ByteLevel as the last pre-tokenizer, found " +
                               type_of(*step) + " behind it");
        }
        if (type == "Split") {
            Result<PreTokenizerStep> split = read_split(*step);
            if (!split.ok()) {
                return std::move(split).error();
            }
            out.steps.push_back(std::move(*split));
        } else if (type == "Digits") {
            PreTokenizerStep digits;
            digits.kind = PreTokenizerStep::Kind::Digits;
            digits.pattern = R"(\p{N})";
            digits.behaviour = flag_of(*step, "individual_digits") == Presence::On
                                   ? PreTokenizerStep::Behaviour::Isolated
                                   : PreTokenizerStep::Behaviour::Contiguous;
            out.steps.push_back(std::move(digits));
        } else if (type == "ByteLevel") {
            is_byte_level = true;
            add_byte_level(*step, out.steps);
        } else {
            return unsupported("expected the pre-tokenizers Split, Digits and ByteLevel, found " +
                               type_of(*step));
        }
    }
    if (!is_byte_level) {
        return unsupported("expected a byte-level tokenizer (pre-tokenizer ByteLevel), found none");
    }
    return {};
}

Status read_decoder(const Json& tree, TokenizerFile& out) {
    const auto steps = steps_of(member(tree, "decoder"), "decoders");
    if (!steps.ok()) {
        return steps.error();
    }
    if (steps->empty()) {
        out.warnings.emplace_back("the file names no decoder; ByteLevel is assumed");
    }
    for (const Json* step : *steps) {
        const std::string type = text_of(*step, "type");
        if (type != "ByteLevel" && type != "Fuse") {
            return unsupported("expected the decoder ByteLevel, found " + type_of(*step));
        }
    }
    return {};
}

Status check_model_type(const Json& model, const TokenizerFileSax& sax) {
    if (!model.is_object()) {
        return corrupt("expected an object \"model\", found " +
                       (model.is_null() ? "none" : model.dump(-1, ' ', true).substr(0, 60)));
    }
    // Early files leave the type out.
    const Json& type = member(model, "type");
    if (!type.is_null() && type != "BPE") {
        return unsupported("expected a model of type BPE, found " + type_of(model));
    }
    if (!sax.has_vocabulary() || !sax.has_merges()) {
        const char* missing = sax.has_vocabulary() ? "a list \"merges\"" : "an object \"vocab\"";
        return corrupt(std::string("expected ") + missing + " in the BPE model, found none");
    }
    return {};
}

Status read_model(const Json& model, const TokenizerFileSax& sax, TokenizerFile& out) {
    if (Status status = check_model_type(model, sax); !status.ok()) {
        return status;
    }
    const Json& dropout = member(model, "dropout");
    if (dropout.is_number() && dropout.get<double>() != 0.0) {
        return unsupported("expected a BPE model without dropout, found " + dropout.dump());
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        if (!text_of(model, key).empty()) {
            return unsupported(std::string("expected a BPE model without ") + key + ", found " +
                               quoted_excerpt(text_of(model, key)));
        }
    }
    if (flag_of(model, "ignore_merges") == Presence::On) {
        out.options.whole_words = BpeOptions::WholeWords::TakeAsTheyAre;
    }
    if (flag_of(model, "fuse_unk") == Presence::On) {
        out.options.unknown = BpeOptions::Unknown::Fused;
    }
    if (flag_of(model, "byte_fallback") == Presence::On) {
        out.byte_fallback = TokenizerFile::ByteFallback::Yes;
    }
    if (member(model, "unk_token").is_string()) {
        out.unknown_token = text_of(model, "unk_token");
    }
    return {};
}

Result<AddedToken> read_added_token(const Json& entry, std::size_t number) {
    using Flag = AddedToken::Flag;
    const Json& id = member(entry, "id");
    const Json& content = member(entry, "content");
    if (!content.is_string()) {
        return corrupt("expected a text \"content\" in added token number " +
                       std::to_string(number) + ", found " +
                       content.dump(-1, ' ', true).substr(0, 60));
    }
    AddedToken out;
    out.content = content.get<std::string>();
    const bool in_range = id.is_number_unsigned() &&
                          id.get<std::uint64_t>() <= static_cast<std::uint64_t>(kLargestTokenId);
    if (!in_range) {
        return corrupt("expected an id from 0 to " + std::to_string(kLargestTokenId) +
                       " for the added token " + quoted_excerpt(out.content) + ", found " +
                       id.dump(-1, ' ', true).substr(0, 60));
    }
    if (out.content.size() > kLongestAddedToken) {
        return unsupported("expected added tokens of at most " +
                           std::to_string(kLongestAddedToken) + " bytes, found one of " +
                           std::to_string(out.content.size()));
    }
    out.id = static_cast<std::int32_t>(id.get<std::uint64_t>());
    out.special = added_flag(entry, "special", Flag::No);
    out.normalized =
        added_flag(entry, "normalized", out.special == Flag::Yes ? Flag::No : Flag::Yes);
    out.single_word = added_flag(entry, "single_word", Flag::No);
    out.lstrip = added_flag(entry, "lstrip", Flag::No);
    out.rstrip = added_flag(entry, "rstrip", Flag::No);
    return out;
}

Status read_added_tokens(const Json& tree, TokenizerFile& out) {
    const Json& list = member(tree, "added_tokens");
    if (list.is_null()) {
        return {};
    }
    if (!list.is_array()) {
        return corrupt("expected a list \"added_tokens\", found " +
                       list.dump(-1, ' ', true).substr(0, 60));
    }
    for (const Json& entry : list) {
        Result<AddedToken> token = read_added_token(entry, out.added.size());
        if (!token.ok()) {
            return std::move(token).error();
        }
        if (token->content.empty()) {
            out.warnings.push_back("added token " + std::to_string(token->id) +
                                   " has no text and is left out");
            continue;
        }
        out.added.push_back(std::move(*token));
    }
    return {};
}

Result<TokenizerFile> read_checked(std::string_view json_text) {
    TokenizerFile out;
    TokenizerFileSax sax(out);
    const bool parsed = Json::sax_parse(json_text.begin(), json_text.end(), &sax);
    if (sax.error()) {
        return Error(*sax.error());
    }
    if (!parsed || !sax.tree().is_object()) {
        return corrupt("expected a JSON object, found something else");
    }
    const Json& tree = sax.tree();
    for (const Status& status :
         {read_model(member(tree, "model"), sax, out), read_normaliser(tree, out),
          read_pre_tokenizer(tree, out), read_decoder(tree, out), read_added_tokens(tree, out)}) {
        if (!status.ok()) {
            return status.error();
        }
    }
    return out;
}

}  // namespace

Result<TokenizerFile> read_tokenizer_file(std::string_view json_text) {
    try {
        return read_checked(json_text);
    } catch (const std::bad_alloc&) {
        return Error{ErrorCode::OutOfMemory,
                     "expected room for the tokenizer, found too little memory", "",
                     "Close other programs and try again"};
    } catch (const std::exception& exception) {
        return corrupt(std::string("expected a tokenizer.json, found one that cannot be read: ") +
                       exception.what());
    }
}

}  // namespace terrace
