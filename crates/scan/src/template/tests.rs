use super::*;

fn judge(template: &str) -> Judged {
    super::judge(template, &HashSet::new())
}

fn reaches(template: &str) -> bool {
    matches!(judge(template), Judged::Reaches(_))
}

#[test]
fn access_to_python_internals_is_found() {
    for bad in [
        "{{ ''.__class__ }}",
        "{{ x.__reduce__ }}",
        "{{ x['__class__'] }}",
        "{{ x['__cl' 'ass__'] }}",
        "{{ x.y[0]._private }}",
        "{% if x.__class__ %}{% endif %}",
        "{%- if messages -%}{{- a.b.__init__.c -}}{%- endif -%}",
        "{# fine #}{{ (x).__class__ }}",
        "{% raw %}{{ x }}{% endraw %}{{ x.__class__ }}",
        "{{ '}}' ~ x.__class__ }}",
        "{{ {'a': {'b': x.__class__}}}}",
        "{{ '\\'' ~ x.__class__ ~ '\\'' }}",
        "{{ (messages|map('upper')).gi_frame.f_globals }}",
        // Escapes.
        "{{ x['\\x5f\\x5fclass'] }}",
        "{{ x['\\137\\137class'] }}",
        "{{ x['\\u005fclass'] }}",
        "{{ x['\\N{LOW LINE}class'] }}",
        "{{ x|attr('\\x5f\\x5fclass\\x5f\\x5f') }}",
        // Filters that look something up.
        "{{ (cycler|attr('__in'~'it__')|attr('__glo'~'bals__'))['o'~'s'].popen('id').read() }}",
        "{{ ''|attr(*['__class__']) }}",
        "{% filter attr('__class__') %}{% endfilter %}",
        "{% set a | attr('__class__') %}{% endset %}",
        "{{ ['']|map('attr', '__class__')|list }}",
        "{{ ['']|map('map', 'attr', '__class__') }}",
        "{{ ['']|map(**{'attribute': '__class__'}) }}",
        "{{ messages|map(attribute='_' ~ 'x')|list }}",
        "{{ messages|map(attribute='role.__class__')|list }}",
        "{{ messages|rejectattr('__class__')|list }}",
        "{{ messages|groupby('__class__') }}",
        "{{ messages|groupby(attribute='__class__') }}",
        "{{ messages|sort(attribute='__class__') }}",
        "{{ messages|sort(false, false, 'a,b.__class__') }}",
        "{{ messages|sum('__class__') }}",
        "{{ messages|unique(attribute='__class__') }}",
        "{{ messages|max(false, '__class__') }}",
        "{{ messages|join('', '__class__') }}",
        // Keys that are put together.
        "{{ x['__cl'~'ass__'] }}",
        "{{ cycler['_' ~ '_init_' ~ '_'] }}",
        "{{ cycler['XXinitXX'|replace('X', u)] }}",
        "{{ cycler[['a', b]|join] }}",
        "{{ cycler['XXinitXX'.replace('X', u)] }}",
        "{{ x['__class__'.replace('a', 'a')] }}",
        "{{ cycler[u ~ 'init' ~ u] }}",
        "{% set k = '_' ~ '_init_' ~ '_' %}{{ cycler[k] }}",
        "{% set k = ['_','_','init']|join %}{{ cycler[k] }}",
        "{% set k = 'x__class__'[1:] %}{{ y[k] }}",
        "{% set k = 'a__class__'.strip('a') %}{{ y[k] }}",
        "{% set k = 'a!__class__'.split('!')[1] %}{{ y[k] }}",
        "{% set k = 'a!__class__'.split('!')|last %}{{ y[k] }}",
        "{% macro f(k) %}{{ ''[k] }}{% endmacro %}{{ f('__class__') }}",
        "{% macro f(k) %}{{ ''[k] }}{% endmacro %}{{ f(k='__class__') }}",
        "{% macro f(k) %}{{ ''[k] }}{% endmacro %}{% set g = f %}{{ g('__class__') }}",
        "{% macro f(k='__class__') %}{{ ''[k] }}{% endmacro %}{{ f() }}",
        "{% macro f() %}{{ ''[varargs[0]] }}{% endmacro %}{{ f('__class__') }}",
        "{% macro f() %}{{ ''[kwargs|first] }}{% endmacro %}{{ f(__class__=1) }}",
        "{% macro f() %}{{ caller('__class__') }}{% endmacro %}{% call(k) f() %}{{ ''[k] }}{% endcall %}",
        "{% macro __class__() %}{% endmacro %}{{ ''[__class__.name] }}",
        "{% for k in ['__class__'] %}{{ ''[k] }}{% endfor %}",
        "{% for k, v in {'__class__': 1}.items() %}{{ ''[k] }}{% endfor %}",
        "{% for k in ['__class__'] %}{% for y in [1] %}{{ ''[loop.previtem] }}{% endfor %}{% endfor %}",
        "{% for k in [messages] recursive %}{{ ''[k] }}{{ loop(['__class__']) }}{% endfor %}",
        "{% with k = '__class__' %}{{ ''[k] }}{% endwith %}",
        "{{ ''[dict(__class__=1)|list|first] }}",
        "{% set ns = namespace(k='__class__') %}{{ ''[ns.k] }}",
        "{% set ns = namespace() %}{% set a = ns %}{% set a.k = '__class__' %}{{ ''[ns.k] }}",
        "{% set ns = namespace({'k': '__class__'}) %}{{ ''[ns.k] }}",
        "{% set ns = namespace(k='__class__') %}{{ ''[ns['k']] }}",
        "{% set l = [] %}{% set _ = l.append('__class__') %}{{ ''[l[0]] }}",
        "{% do messages.append('__class__') %}{{ ''[messages[-1]] }}",
        "{{ ''[strftime_now('__class__')] }}",
        "{{ ''['a'|int('__class__')] }}",
        "{{ ''[nothing|default('__class__')] }}",
        "{{ ''['__class__' if messages else 'x'] }}",
        "{{ ''[('x' if nothing) ~ '__class__'] }}",
        "{% set d = {'find': 'x__class__'.strip} %}{{ ''[d.find('x')] }}",
        "{% set d = {'find': 'a'.replace} %}{{ ''[d.find('a', '__class__')] }}",
        "{% set ｋ = '__class__' %}{{ ''[k] }}",
        "{% set b = a %}{% set c = b %}{% set a = '__class__' %}{{ ''[c] }}",
        // Objects of Jinja, and calls of Python.
        "{{ cycler[u ~ v] }}",
        "{{ lipsum.__globals__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ os.popen('id') }}",
        "{{ os.system('id') }}",
        "{{ eval('1') }}",
        // Texts that are formatted look up what they say.
        "{{ '{0.__class__}'.format(x) }}",
        "{{ ('{0.__cl' ~ 'ass__}').format(x) }}",
        "{% set f = '{0.__class__}'.format %}{{ f(x) }}",
    ] {
        assert!(reaches(bad), "{bad}: {:?}", judge(bad));
    }
    let two = judge("a\nb {{ x.__class__ }}{{ x.__init__ }}");
    assert_eq!(two, Judged::Reaches("line 2 of the template accesses `__class__`".to_owned()));
}

/// Access through filters, methods, assignment targets and other forms of calls.
#[test]
fn indirect_access_is_found_or_unread() {
    for bad in [
        "{{ ''[(['__class__']|e)[6:-6]] }}",
        "{{ ''[([['__class__']]|lower)[3:-3]] }}",
        "{{ ''[((1|trim) + '__class__')[1:]] }}",
        "{% set _ = messages.append('__class__') %}{{ ''[(messages|string)[-11:-2]] }}",
        // Ends of lines are one letter before texts are read.
        "{{ ''[\"\\\r__class__\"] }}",
        "{{ ''|attr(\"\\\r\n__class__\") }}",
        // Arguments in lists and mappings.
        "{{ ''['x'|int(*['__class__'])] }}",
        "{{ ''[nothing|default(*['__class__'])] }}",
        "{{ ''[nothing|default(**{'default_value': '__class__'})] }}",
        "{{ ''['x'|float(**{'default': '__class__'})] }}",
        "{{ ''[(['a']|batch(2, *['__class__'])|first)[1]] }}",
        "{{ ''[{}.get(*['k', '__class__'])] }}",
        // Items of items.
        "{% set d = {} %}{% set _ = d.update([('k', '__class__')]) %}{{ ''[d.k] }}",
        "{% set d = {} %}{% set _ = d.update(**{'k': '__class__'}) %}{{ ''[d.k] }}",
        "{% set l = [] %}{% set f = l.append %}{% set _ = f('__class__') %}{{ ''[l[0]] }}",
        "{% set l = [] %}{% set _ = messages[0].update({'l': l}) %}{% set _ = l.append('__class__') %}{{ ''[messages[0].l[0]] }}",
        "{% set a, (b, c) = 'x', ('y', '__class__') %}{{ ''[c] }}",
        "{% set (a, (b, (c, d))) = 'w', ('x', ('y', '__class__')) %}{{ ''[d] }}",
        "{% for a, (b, c) in [('x', ('y', '__class__'))] %}{{ ''[c] }}{% endfor %}",
        "{{ ''[[{'a': {'b': '__class__'}}]|map(attribute='a.b')|first] }}",
        "{{ ''[[{'k': ['__class__']}]|map(attribute='k.0')|first] }}",
        "{{ ''[[{'a': {'b': {'c': '__class__'}}}]|groupby('a.b.c')|first|first] }}",
        "{{ ''[[{'a': {'b': ['__class__']}}]|sum('a.b', [])|first] }}",
        // Macros.
        "{% macro a(q) %}{% endmacro %}{% macro b() %}{{ ''[kwargs.q] }}{% endmacro %}{{ b(q='__class__') }}",
        "{% macro b(x) %}{% endmacro %}{% macro b() %}{{ ''[varargs[0]] }}{% endmacro %}{{ b('__class__') }}",
        "{% macro m(k) %}{{ ''[k] }}{% endmacro %}{% macro f() %}{{ caller('__class__') }}{% endmacro %}{{ f(caller=m) }}",
        "{% macro f(caller) %}{{ caller('__class__') }}{% endmacro %}{% call(k) f() %}{{ ''[k] }}{% endcall %}",
        "{% macro m(k) %}{{ ''[k] }}{% endmacro %}{% set _ = ['__class__', 'x'].sort(key=m) %}",
        "{% set range = {}.get %}{{ ''[range('k', '__class__')] }}",
        // Functions under other names.
        "{% for i in [1] %}{{ ''[{'get': loop.cycle}['get']('__class__')] }}{% endfor %}",
        "{% for i in [1] %}{{ ''[loop.cycle('__class__')] }}{% endfor %}",
        "{% for i in [1, '__class__'] %}{% set l = loop %}{{ ''[l.nextitem] }}{% endfor %}",
        "{% set loop = namespace(first='__class__') %}{{ ''[loop.first] }}",
        "{{ ''[{'append': {}.get}['append']('k', '__class__')] }}",
        "{{ ''[cycler('__class__').next()] }}{{ x }}",
        "{{ ''[(namespace(a='__class__')|attr('a'))] }}",
        "{% macro loop(x) %}{% endmacro %}{% for k in [1] recursive %}{{ ''[k] ~ loop(['__class__']) }}{% endfor %}",
        "{% set l = [] %}{% set _ = messages[0].update({'l': l}) %}{% set _ = l.append('__class__') %}{{ ''[(messages|string)[9:]] }}",
        // Behind an empty text.
        "{{ {}[messages[0].nothing ~ '__class__'] }}",
    ] {
        assert!(reaches(bad), "{bad}: {:?}", judge(bad));
    }
}

/// Keys whose names are not visible in the template.
#[test]
fn computed_keys_are_not_clean() {
    for computed in [
        "{{ ''|attr('_'*2+'class'+'_'*2) }}",
        "{{ ''|attr(request.args.a) }}",
        "{{ ''|attr(name) }}",
        "{{ ['']|map('attr', x) }}",
        "{{ ['']|map('at'~'tr', x) }}",
        "{{ ['']|map(f, x) }}",
        "{{ messages|map(attribute=k)|list }}",
        "{{ messages|selectattr(k)|list }}",
        "{{ x[('%c'|format(95)) * 2 ~ 'class'] }}",
        "{{ x['%c%cclass' % (95, 95)] }}",
        "{{ x['{:c}'.format(95) + 'x'] }}",
        "{% set x='_' %}{{ y[x~x~'class'~x~x] }}",
        "{% set k = '__ssalc__'|reverse %}{{ y[k] }}",
        "{% set k = '__ssalc__'[::-1] %}{{ y[k] }}",
        "{% set k %}__class__{% endset %}{{ y[k] }}",
        "{% macro k() %}__class__{% endmacro %}{{ y[k()] }}",
        "{{ ''[bos_token] }}",
        "{{ ''[bos_token[3:] ~ 'x'] }}",
        // `tool_calls` has all letters of a name.
        "{% for k in message %}{{ ''[k[4]+k[4]+k[5]+k[7]] }}{% endfor %}",
        "{% set a = (()|select|string|list)[24] %}{{ ''[a~a~'class'] }}",
        "{% macro f() %}__class__{% endmacro %}{% set d = {'find': f} %}{{ ''[d.find()] }}",
        // New text has letters that its input does not have.
        "{{ ''['&#95;&#95;class&#95;&#95;'|striptags] }}",
        "{{ ['']|map(attribute='&lowbar;_class__'|striptags)|list }}",
        "{{ ('{0.&#95;_class__}'|striptags).format('') }}",
        "{{ ''[('&#95;&#95;class&#95;&#95;'|safe).unescape()] }}",
        "{{ ''[{'find': 'x'.join}['find'](['__cla', 'ss__'])] }}",
        "{{ ''[{'find': ''['jo' ~ 'in']}.find(['__cla', 'ss__'])] }}",
        "{{ ''[{'find': ''.join}.keys().mapping.find(['__cla', 'ss__'])] }}",
        // What the files of the model may set, where a piece of it is the name.
        "{{ ''[foo[1:]] }}",
        "{% set k = foo[1:] %}{{ ''[k] }}",
        "{{ ''[foo|trim] }}",
        "{{ ''[foo.split('x')|last] }}",
        "{{ ''[foo|striptags] }}",
        "{{ x[messages[0].role ~ '_name'] }}",
        "{{ names[m['role'] ~ '_name'] }}",
        "{{ messages[ns.i + i] }}",
        // Set and given from one name to another, in any order.
        "{{ ''[c] }}{% set c = b %}{% set b = a ~ 'ss__' %}",
        "{% set ns = namespace() %}{% set ns.k = a ~ b %}{{ ''[ns.k] }}",
        "{% set a, (b, c) = 'x', ('y', p ~ q) %}{{ ''[c] }}",
        "{% for k in [p ~ q] %}{{ ''[k] }}{% endfor %}",
        "{% for k in 'a b'.split() %}{{ ''[k] }}{% endfor %}",
        "{% for k in [messages] recursive %}{{ ''[k] }}{{ loop([p ~ q]) }}{% endfor %}",
        "{% with k = p ~ q %}{{ ''[k] }}{% endwith %}",
        "{% set l = [] %}{% set _ = l.append(p ~ q) %}{{ ''[l[0]] }}",
        "{% set _ = ns.l.append(p ~ q) %}{{ ''[ns.l[0]] }}",
        "{% set _ = (l).append(p ~ q) %}{{ ''[l[0]] }}",
        "{% set m = l %}{% set _ = m.append(p ~ q) %}{{ ''[l[0]] }}",
        "{% set ｋ = p ~ q %}{{ ''[k] }}",
        "{% macro f(k) %}{{ ''[k] }}{% endmacro %}{{ f(p ~ q) }}",
        "{% macro f(k=p ~ q) %}{{ ''[k] }}{% endmacro %}",
        "{% macro f() %}{{ caller(p ~ q) }}{% endmacro %}{% call(k) f() %}{{ ''[k] }}{% endcall %}",
        "{% set range = ''.join %}{{ ''[range([k[4], k[4], 'class'])] }}",
        "{% for a in [p ~ q] %}{% for b in [1] %}{{ ''[loop.previtem] }}{% endfor %}{% endfor %}",
        "{{ ''[['%c%cclass']|map('format', 95, 95)|first] }}",
        "{{ ''['a' ~ b if x else c ~ d] }}",
        "{{ ''[('a' ~ b)[1:]] }}",
        "{{ foo.format(x) }}",
    ] {
        assert!(matches!(judge(computed), Judged::Unread(_)), "{computed}: {:?}", judge(computed));
    }
    let two = judge("{{ x }}\n{{ x[a ~ b] }}");
    assert_eq!(two, Judged::Unread("line 2 of the template accesses a computed name".to_owned()));
}

#[test]
fn tokens_of_the_model_count_as_computed() {
    let tokens: HashSet<String> = ["foo".to_owned()].into();
    let judge = |template| super::judge(template, &tokens);
    for computed in ["{{ ''[foo] }}", "{% if x %}{% set foo = 1 %}{% endif %}{{ ''[foo] }}"] {
        assert!(matches!(judge(computed), Judged::Unread(_)), "{computed}");
    }
    assert_eq!(judge("{{ foo ~ bar[1:] }}{{ messages[bar] }}"), Judged::Clean);
}

#[test]
fn harmless_underscores_and_keys_are_clean() {
    for good in [
        "__init__ is a function {# and x.__class__ a name #} of {% raw %}{{ x.__class__ }}{% endraw %}",
        "{# {{ ''.__class__ }} #}",
        "{{ 'a__b'.split('__')[0] }}",
        "{{ '__' }}{{ x ~ '__' ~ y }}{{ '_' * 20 }}",
        "{{ '\\u003cthink\\x3e' }}{{ '\\u2581' ~ x['\\x72ole'] }}",
        "{{ messages|map('attr', 'role')|list }}{{ x|attr('role') }}{% filter upper %}x{% endfilter %}",
        "{{ 'gi_frame and __class__' in message.content }}",
        "{{ message.content.replace('__', ' ') }}{{ '%s__%s'|format(a, b) }}",
        "{% for key in ['tool_calls', 'tool_call_id'] %}{{ message[key] }}{% endfor %}",
        "{% for key, name in {'tool_calls': 'as_is'}.items() %}{{ message[key] ~ names[name] }}{% endfor %}",
        "{{ roles['role_' ~ message.role] }}{{ x[('a' ~ 'b')|lower] }}",
        "{% set _ = namespace(a=1) %}{% for _ in range(3) %}x{% endfor %}",
        "{% set key = 'some_key' %}{{ message[key] }}{{ messages|map(attribute='some_key')|list }}",
        "{% macro f(name, spec) %}{{ spec[name] }}{% endmacro %}{{ f('some_name', tool.spec) }}",
        "{{ '{0}: {1}'.format(a, b) }}{{ message.get('tool_calls', [])[0] }}",
        "{{ a if b is not none else c if d is defined else e }}{{ not a and not(b or c) }}{{ 1.5e-3 + 1_000 }}",
        "{{ x is divisibleby 3 }}{{ a not in b }}{{ -1|abs }}{{ (a, b)|length }}{{ () }}{{ x[1, 2] }}{{ x[::-1] }}",
        "{% set ns = namespace(calls=[], i=0) %}{% set _ = ns.calls.append({'name': a ~ b}) %}{{ messages[ns.i + 1] }}{% for k in messages[0].arguments %}{{ messages[0].arguments[k] }}{% endfor %}",
        "{% for i in range(1, messages|length) %}{{ messages[i - 1].role ~ loop.cycle('a', 'b') }}{% endfor %}{{ x|striptags|indent(2) }}",
        "{% for k, v in message.arguments|dictsort %}{{ spec[k] }}{% endfor %}{{ roles[message.role|lower] ~ roles[message.role.strip()] }}",
        "{% for name, (first, more) in pairs %}{{ x[name] ~ first }}{% endfor %}\r\n{{ \"a\r\nb\" }}",
        "{{ names['user_name'] ~ names[m.role] }}{{ '<__media__>' }}{% set n = ns.items|length %}{{ messages[n] }}",
        "{% set messages = messages[1:] %}{% for m in messages %}{{ roles[m['role']] }}{% endfor %}{{ config.name }}",
        "{% set part = tool.name.split('.')[0] %}{{ described[part] }}{{ config['name'] ~ self.body() }}",
        "{%+ if a +%}{%- elif b -%}{% else %}{% endif %}{{- x -}}{{ {} }}{{ [[1, 2], {'a': 1,},] }}",
    ] {
        assert_eq!(judge(good), Judged::Clean, "{good}");
    }
}

/// Templates in the style of well-known models.
#[test]
fn templates_of_common_models_are_clean() {
    for (family, good) in [
        (
            "ChatML",
            "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        ),
        (
            "Llama 3",
            "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}",
        ),
        (
            "Llama 3.1",
            "{{- bos_token }}\n{%- if custom_tools is defined %}\n    {%- set tools = custom_tools %}\n{%- endif %}\n{%- if not date_string is defined %}\n    {%- if strftime_now is defined %}{%- set date_string = strftime_now(\"%d %b %Y\") %}{%- else %}{%- set date_string = \"1 Jan\" %}{%- endif %}\n{%- endif %}\n{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}{%- else %}{%- set system_message = \"\" %}{%- endif %}\n{{- \"Tools: \" + builtin_tools | reject('equalto', 'code_interpreter') | join(\", \") + \"\\n\\n\"}}\n{%- for t in tools %}{{- t | tojson(indent=4) }}{%- endfor %}\n{%- for message in messages %}{%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}{{- message['content'] | trim }}{%- elif 'tool_calls' in message %}{%- if not message.tool_calls|length == 1 %}{{- raise_exception(\"One call at once!\") }}{%- endif %}{%- set tool_call = message.tool_calls[0].function %}{%- if builtin_tools is defined and tool_call.name in builtin_tools %}{%- for arg_name, arg_val in tool_call.arguments | items %}{{- arg_name + '=\"' + arg_val + '\"' }}{%- if not loop.last %}{{- \", \" }}{%- endif %}{%- endfor %}{%- else %}{{- '{\"name\": \"' + tool_call.name + '\", ' }}{{- tool_call.arguments | tojson }}{%- endif %}{%- elif message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- endif %}{%- endfor %}",
        ),
        (
            "Qwen2.5",
            "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- endif %}{%- for tool in tools %}{{- \"\\n\" }}{{- tool | tojson }}{%- endfor %}{%- endif %}{%- for message in messages %}{%- if (message.role == \"user\") or (message.role == \"system\" and not loop.first) %}{{- message.content }}{%- elif message.role == \"assistant\" %}{%- for tool_call in message.tool_calls %}{%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}{{- '{\"name\": \"' }}{{- tool_call.name }}{{- tool_call.arguments | tojson }}{%- endfor %}{%- elif message.role == \"tool\" %}{%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != \"tool\") %}{{- 'x' }}{%- endif %}{%- if loop.last or (messages[loop.index0 + 1].role != \"tool\") %}{{- 'y' }}{%- endif %}{%- endif %}{%- endfor %}",
        ),
        (
            "Qwen3",
            "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}{%- if ns.multi_step_tool and message.role == \"user\" and message.content is string and not(message.content.startswith('<a>') and message.content.endswith('</a>')) %}{%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}{{ messages[index].role ~ messages[ns.last_query_index]['role'] }}{%- endif %}{%- endfor %}{%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}{%- set reasoning_content = message.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{{ reasoning_content.strip('\\n') }}",
        ),
        (
            "Mistral",
            "{%- if messages[0][\"role\"] == \"system\" %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}{%- set user_messages = loop_messages | selectattr(\"role\", \"equalto\", \"user\") | list %}{%- set ns = namespace() %}{%- set ns.index = 0 %}{%- for message in loop_messages %}{%- if not (message.role == \"tool\" or (message.tool_calls is defined and message.tool_calls is not none)) %}{%- if (message[\"role\"] == \"user\") != (ns.index % 2 == 0) %}{{- raise_exception(\"Roles must alternate\") }}{%- endif %}{%- set ns.index = ns.index + 1 %}{%- endif %}{%- endfor %}{{- bos_token }}{%- for message in loop_messages %}{%- if tools is not none and (message == user_messages[-1]) %}{%- for tool in tools %}{%- set tool = tool.function %}{%- for key, val in tool.items() if key != \"return\" %}{%- if val is string %}{{- '\"' + key + '\": \"' + val + '\"' }}{%- else %}{{- '\"' + key + '\": ' + val|tojson }}{%- endif %}{{ tool[key] }}{%- endfor %}{%- endfor %}{%- endif %}{%- if not tool_call.id is defined or tool_call.id|length != 9 %}{{- raise_exception(\"9 letters\") }}{%- endif %}{{- eos_token }}{%- endfor %}",
        ),
        (
            "Gemma",
            "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}{%- set loop_messages = messages[1:] -%}{%- endif -%}{%- for message in loop_messages -%}{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('Roles') }}{%- endif -%}{%- if (message['role'] == 'assistant') -%}{%- set role = 'model' -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}{{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else '') }}{%- if message['content'] is string -%}{{ message['content'] | trim }}{%- elif message['content'] is iterable -%}{%- for item in message['content'] -%}{%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}{%- endif -%}{{ names[role] }}{%- endfor -%}{%- endif -%}{{ '<end_of_turn>\n' }}{%- endfor -%}",
        ),
        (
            "DeepSeek",
            "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'assistant' and message['content'] is none %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls']%}{%- if not ns.is_first %}{{'<｜Assistant｜><｜tool▁calls▁begin｜>' + tool['type'] + tool['function']['name'] + '\\n' + '```json' + '\\n' + tool['function']['arguments'] + '\\n' + '```'}}{%- set ns.is_first = true -%}{%- endif %}{%- endfor %}{%- elif message['role'] == 'assistant' %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content}}{%- endif %}{%- endfor -%}",
        ),
        (
            "Phi-3",
            "{% for message in messages %}{% if (message['role'] in ['user', 'system']) %}{{'<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|end|>' + '\n' }}{% endgeneration %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
        ),
        (
            "Command R",
            "{%- macro json_to_type(json_spec, basic_type_map={}) %}{%- if json_spec.type in basic_type_map %}{{ basic_type_map[json_spec.type] }}{%- elif json_spec.type == \"array\" %}{{- \"List[\" + json_to_type(json_spec[\"items\"], basic_type_map) + \"]\"}}{%- else %}{%- for t in json_spec.type %}{{- json_to_type({\"type\": t}, basic_type_map) }}{%- endfor %}{%- endif %}{%- endmacro %}{%- for name, spec in tool.function.parameters.properties.items() %}{{ name ~ ': ' ~ json_to_type(spec, {'string': 'str', 'number_type': 'float'}) }}{%- endfor %}",
        ),
        (
            "others",
            "{{ messages | rejectattr(\"role\", \"equalto\", \"system\") | map(attribute='content') | join('\\n') }}{{ tools[tool_name]['description'] ~ messages[i].content }}{%- for name in ['system', 'user'] %}{{ name + ' \\\\ ' + roles[name] }}{%- endfor %}{%- macro render(attr, value) %}{{ attr }}={{ value['a'] if value['a'] is defined else \"it's\" }}{%- endmacro %}{{ messages[-1:][0]['content'] }}{% for g in groups|sort(attribute='name') %}{{ x[g.name] }}{% break %}{% endfor %}",
        ),
    ] {
        assert_eq!(judge(good), Judged::Clean, "{family}");
    }
}

#[test]
fn unsupported_templates_are_not_clean() {
    let long = "x".repeat(MAX_TEMPLATE_LEN + 1);
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(500), ")".repeat(500));
    let chain: String = (0..40).rev().map(|n| format!("{{% set a{} = a{n} %}}", n + 1)).collect();
    let chain = chain + "{% set a0 = '_' %}";
    for unread in
        [&*long, &deep, &chain, "{{ x", "{% trans %}x{% endtrans %}", "{# x", "{% raw %}", "{{ 'x }}"]
    {
        assert!(matches!(judge(unread), Judged::Unread(_)), "{}", &unread[..unread.len().min(80)]);
    }
    // Code before the break still counts.
    assert!(reaches("{{ x.__class__ }}{% trans %}"));
}

/// Templates of the greatest length with repeated values, names and tags.
#[test]
fn large_templates_are_judged_quickly() {
    for piece in [
        "{{f(*a)}}",
        "{%set a.b=a%}{{a.c}}",
        "{%macro f(a,b,c)%}",
        "{{f(a=1)}}",
        "{{[[[[[1]]]]]}}",
        "{%raw%}{%endraw%}",
        "{{'\\x61'}}",
        "{{ - - - 1 }}",
    ] {
        let many = piece.repeat(MAX_TEMPLATE_LEN / piece.len());
        assert_eq!(judge(&many), Judged::Clean, "{piece}");
    }
    for middle in ["a=1,", "1,", "*a,", "a+", "not ", "a if b else ", "x[", "\"a\" ", "a|attr("] {
        let many = format!("{{{{ f({}1) }}}}", middle.repeat((MAX_TEMPLATE_LEN - 20) / middle.len()));
        judge(&many);
    }
    // A macro of many parameters that is called often, or with many names.
    let of_many = format!("{{% macro f({}) %}}{{% endmacro %}}", "a,".repeat(60_000));
    let often = "{{f()}}".repeat(18_000);
    assert_eq!(judge(&(of_many.clone() + &often)), Judged::Clean);
    let named = format!("{{{{f({})}}}}", "b=1,".repeat(30_000));
    assert_eq!(judge(&(of_many + &named)), Judged::Clean);
}

/// Parameters of a macro are not distinguished.
#[test]
fn macros_that_receive_computed_text_are_unread() {
    let called = |call: &str| {
        judge(&format!("{{% macro f(a, b) %}}{{{{ x[b] }}}}{{% endmacro %}}{{{{ f({call}) }}}}"))
    };
    for plain in ["p, 'k'", "'k', b='k'", "'role_' ~ p, 'k'"] {
        assert_eq!(called(plain), Judged::Clean, "{plain}");
    }
    for computed in ["p ~ q, 'k'", "'k', '_' ~ q", "'k', b='_' ~ q"] {
        assert!(matches!(called(computed), Judged::Unread(_)), "{computed}");
    }
}
