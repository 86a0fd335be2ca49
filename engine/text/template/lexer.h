// Cuts a template into text and the tokens of its tags, with the white-space rules that chat
// templates rely on (trim_blocks, lstrip_blocks, the - and + marks).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/template/runtime.h"

namespace terrace::jinja {

enum class TokenType {
    Data,
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name,
    String,
    Integer,
    Float,
    Operator,
    Error,  ///< `text` is why the source cannot be read past this place
    End,
};

/// Value type. `text` of a String has its escapes resolved.
struct Token {
    TokenType type = TokenType::End;
    std::string text;
    Position position;
};

/// All tokens of a template, ending in End or Error. The source must be UTF-8.
std::vector<Token> tokenize(std::string_view source);

/// What a token is called in messages.
std::string describe(const Token& token);

}  // namespace terrace::jinja
